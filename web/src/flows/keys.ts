// Made from crates/host/condition/src/key.rs by `UPDATE_DOCS=1 cargo test -p skua-cli docs`.

/** Keys of conditions on flows, with their meanings. */
export const KEYS: [string, string][] = [
  ["process:", "name of the process that has the socket of either side: process:curl"],
  ["port:", "port of either side: port:80,443"],
  ["address:", "address or prefix of either side: address:10.0.0.0/8"],
  ["service:", "service that is called: container, else systemd service, else process: service:postgres"],
  ["protocol:", "transport protocol: protocol:udp"],
  ["state:", "state of TCP, or why the record ended: state:established"],
  ["rate>", "bits per second of both directions: rate>1Mbit"],
  ["bytes>", "bytes of both directions: bytes>10MB"],
  ["packets>", "packets of both directions: packets>1000"],
  ["rtt>", "time of TCP's handshake: rtt>50ms"],
  ["retransmits>", "TCP segments that were sent again: retransmits>0"],
  ["age>", "time from the first packet to the last: age>1h"],
  ["interface:", "interface that has seen it: interface:eth*"],
  ["namespace:", "network namespace of the interface: namespace:web"],
  ["vlan:", "VLAN identifier of any tag: vlan:7"],
  ["container:", "container of either side: container:web"],
  ["pod:", "Kubernetes pod of either side: pod:cart-*"],
  ["unit:", "systemd unit of either side: unit:nginx.service"],
  ["user:", "user of either side's process: user:root"],
  ["pid:", "process identifier of either side: pid:4711"],
  ["country:", "country of either side's address, by a file of `networks`: country:DE"],
  ["asn:", "autonomous system of either side, by a file of `networks`: asn:3320"],
  ["organization:", "who runs the autonomous system of either side: organization:*telekom*"],
  ["network:", "range of your own with either side's address, by a file of `networks`: network:office"],
];
