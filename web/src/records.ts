// Records, from the definitions of their fields: `UPDATE_DOCS=1 cargo test -p skua-cli docs` writes this anew.

export interface Flow {
  interface: string;
  points?: number;
  layers: string;
  protocol: string;
  a: {
    address: string;
    port?: number;
    name?: string;
    process?: string;
    pid?: number;
    user?: string;
    container?: string;
    pod?: string;
    unit?: string;
    country?: string;
    asn?: number;
    organization?: string;
    network?: string;
  };
  b: {
    address: string;
    port?: number;
    name?: string;
    process?: string;
    pid?: number;
    user?: string;
    container?: string;
    pod?: string;
    unit?: string;
    country?: string;
    asn?: number;
    organization?: string;
    network?: string;
  };
  ab: {
    packets: number;
    bytes: number;
  };
  ba: {
    packets: number;
    bytes: number;
  };
  start: string;
  last: string;
  community_id?: string;
  id: string;
  end?: string;
  duration: number;
  ifindex: number;
  netns?: number;
  link?: {
    a?: string;
    b?: string;
    moved?: number;
  };
  mpls?: {
    a?: number;
    b?: number;
  };
  ip?: {
    fragments?: number;
  };
  rtt?: number;
  vlans?: number[];
  ethertype?: number;
  icmp?: {
    type?: number;
    code?: number;
    id?: number;
  };
  tcp?: {
    state?: string;
    opened_by?: string;
    handshake_rtt?: number;
    server_rtt?: number;
    client_rtt?: number;
    ab_flags?: string;
    ba_flags?: string;
    ab_ecn?: string;
    ba_ecn?: string;
    ab_retransmitted?: number;
    ba_retransmitted?: number;
    ab_out_of_order?: number;
    ba_out_of_order?: number;
    ab_zero_window?: number;
    ba_zero_window?: number;
    ab_syn?: string;
    ba_syn?: string;
    ab_fin?: string;
    ba_fin?: string;
    ab_rst?: string;
    ba_rst?: string;
    ab_syn_ttl?: number;
    ba_syn_ttl?: number;
    ab_skipped?: number;
    ab_skipped_bytes?: number;
    ba_skipped?: number;
    ba_skipped_bytes?: number;
  };
  tunnel?: {
    type?: string;
    id?: number;
    parent?: string;
  };
  service?: {
    side?: string;
    by?: string;
    port_name?: string;
  };
  sampling?: number;
  rate: {
    bits_per_second: number;
    packets_per_second: number;
  };
  tls?: {
    sni?: string;
    alpn?: string;
    version?: string;
    ja4?: string;
    ech?: string;
  };
}
/** Fields of it that a query answers in the same form: where in the record, where in the answer. */
export const FLOW_KEYS: readonly (readonly [string, string])[] = [
  ["interface", "Interface"],
  ["layers", "LayersPath"],
  ["a.name", "A.Name"],
  ["a.process", "A.Process"],
  ["a.pid", "A.PID"],
  ["a.user", "A.User"],
  ["a.container", "A.Container"],
  ["a.pod", "A.Pod"],
  ["a.unit", "A.Unit"],
  ["a.country", "A.Country"],
  ["a.asn", "A.ASN"],
  ["a.organization", "A.Organization"],
  ["a.network", "A.Network"],
  ["b.name", "B.Name"],
  ["b.process", "B.Process"],
  ["b.pid", "B.PID"],
  ["b.user", "B.User"],
  ["b.container", "B.Container"],
  ["b.pod", "B.Pod"],
  ["b.unit", "B.Unit"],
  ["b.country", "B.Country"],
  ["b.asn", "B.ASN"],
  ["b.organization", "B.Organization"],
  ["b.network", "B.Network"],
  ["ab.packets", "Metric.ABPackets"],
  ["ab.bytes", "Metric.ABBytes"],
  ["ba.packets", "Metric.BAPackets"],
  ["ba.bytes", "Metric.BABytes"],
  ["community_id", "CommunityID"],
  ["id", "UUID"],
  ["duration", "Duration"],
  ["ifindex", "IfIndex"],
  ["netns", "NetNS"],
  ["link.moved", "Link.Moved"],
  ["mpls.a", "MPLS.A"],
  ["mpls.b", "MPLS.B"],
  ["ip.fragments", "IPMetric.Fragments"],
  ["rtt", "Metric.RTT"],
  ["ethertype", "EtherType"],
  ["icmp.code", "ICMP.Code"],
  ["icmp.id", "ICMP.ID"],
  ["tcp.state", "TCPMetric.State"],
  ["tcp.opened_by", "TCPMetric.OpenedBy"],
  ["tcp.handshake_rtt", "TCPMetric.HandshakeRTT"],
  ["tcp.server_rtt", "TCPMetric.ServerRTT"],
  ["tcp.client_rtt", "TCPMetric.ClientRTT"],
  ["tcp.ab_flags", "TCPMetric.ABFlags"],
  ["tcp.ba_flags", "TCPMetric.BAFlags"],
  ["tcp.ab_ecn", "TCPMetric.ABECN"],
  ["tcp.ba_ecn", "TCPMetric.BAECN"],
  ["tcp.ab_retransmitted", "TCPMetric.ABSegmentRetransmitted"],
  ["tcp.ba_retransmitted", "TCPMetric.BASegmentRetransmitted"],
  ["tcp.ab_out_of_order", "TCPMetric.ABSegmentOutOfOrder"],
  ["tcp.ba_out_of_order", "TCPMetric.BASegmentOutOfOrder"],
  ["tcp.ab_zero_window", "TCPMetric.ABZeroWindow"],
  ["tcp.ba_zero_window", "TCPMetric.BAZeroWindow"],
  ["tcp.ab_syn_ttl", "TCPMetric.ABSynTTL"],
  ["tcp.ba_syn_ttl", "TCPMetric.BASynTTL"],
  ["tcp.ab_skipped", "TCPMetric.ABSegmentSkipped"],
  ["tcp.ab_skipped_bytes", "TCPMetric.ABSegmentSkippedBytes"],
  ["tcp.ba_skipped", "TCPMetric.BASegmentSkipped"],
  ["tcp.ba_skipped_bytes", "TCPMetric.BASegmentSkippedBytes"],
  ["tunnel.type", "Tunnel"],
  ["tunnel.id", "Network.ID"],
  ["tunnel.parent", "ParentUUID"],
  ["service.by", "Service.Rule"],
  ["service.port_name", "Service.PortName"],
  ["tls.sni", "TLS.SNI"],
  ["tls.alpn", "TLS.ALPN"],
  ["tls.version", "TLS.Version"],
  ["tls.ja4", "TLS.JA4"],
  ["tls.ech", "TLS.ECH"],
];

export interface Socket {
  protocol: string;
  state: string;
  process?: string;
  pid?: number;
  ns_pid?: number;
  user?: string;
  executable?: string;
  container?: string;
  pod?: string;
  unit?: string;
  owner_by?: string;
  local: {
    address: string;
    port: number;
  };
  remote?: {
    address?: string;
    port?: number;
  };
  opened_by?: string;
  service?: {
    side?: string;
    by?: string;
  };
  start?: string;
  established?: string;
  seen: string;
  age?: number;
  end?: string;
  errno?: number;
  sent?: {
    bytes?: number;
    segments?: number;
  };
  received?: {
    bytes?: number;
    segments?: number;
  };
  tcp?: {
    srtt?: number;
    rttvar?: number;
    min_rtt?: number;
    retransmits?: number;
    retransmitted?: number;
    lost?: number;
    cwnd?: number;
    mss?: number;
    delivery_rate?: number;
  };
  backlog?: {
    waiting?: number;
    limit?: number;
  };
  netns: number;
  id: number;
}
/** Fields of it that a query answers in the same form: where in the record, where in the answer. */
export const SOCKET_KEYS: readonly (readonly [string, string])[] = [
  ["process", "Name"],
  ["pid", "Pid"],
  ["ns_pid", "NSPid"],
  ["user", "User"],
  ["container", "Container"],
  ["pod", "Pod"],
  ["unit", "Unit"],
  ["owner_by", "OwnerBy"],
  ["local.address", "LocalAddress"],
  ["local.port", "LocalPort"],
  ["opened_by", "OpenedBy"],
  ["service.side", "ServiceSide"],
  ["service.by", "ServiceRule"],
  ["age", "Age"],
  ["end", "End"],
  ["errno", "Errno"],
  ["sent.bytes", "BytesSent"],
  ["sent.segments", "SegmentsSent"],
  ["received.bytes", "BytesReceived"],
  ["received.segments", "SegmentsReceived"],
  ["tcp.retransmits", "Retransmits"],
  ["tcp.retransmitted", "BytesRetransmitted"],
  ["tcp.lost", "Lost"],
  ["tcp.cwnd", "CWND"],
  ["tcp.mss", "MSS"],
  ["tcp.delivery_rate", "DeliveryRate"],
  ["backlog.waiting", "BacklogWaiting"],
  ["backlog.limit", "BacklogLimit"],
  ["netns", "NetNsInode"],
  ["id", "Cookie"],
];

export interface Calls {
  protocol: string;
  client?: {
    service?: string;
    address?: string;
  };
  server?: {
    service?: string;
    address?: string;
  };
  port?: number;
  peers?: number;
  connections: number;
  open: number;
  rate: number;
  failed: number;
  refused: number;
  timed_out: number;
  reset: number;
  bytes: {
    to_server: number;
    to_client: number;
  };
  rtt?: {
    samples?: number;
    min?: number;
    mean?: number;
    p50?: number;
    p95?: number;
    p99?: number;
    max?: number;
  };
  segments?: {
    sent?: number;
    retransmitted?: number;
    share?: number;
  };
  first?: string;
  last?: string;
}

export interface ServiceEdge {
  client: {
    service?: string;
    address?: string;
  };
  server: {
    service?: string;
    address?: string;
  };
  protocol: number;
  port: number;
  client_sent: {
    packets: number;
    bytes: number;
  };
  server_sent: {
    packets: number;
    bytes: number;
  };
  connections: number;
  ended: number;
  failures: {
    refused: number;
    timed_out: number;
  };
  reset: number;
  retransmitted: {
    client: number;
    server: number;
  };
  rtt?: {
    count?: number;
    sum_us?: number;
    min_us?: number;
    max_us?: number;
    p50_us?: number;
    p95_us?: number;
    p99_us?: number;
  };
  samples: number;
  first: string;
  last: string;
  change?: string;
  rate?: {
    bits_per_second?: number;
    connections_per_second?: number;
    failures_per_second?: number;
  };
}
