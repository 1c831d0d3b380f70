#!/usr/bin/env python3
"""Copying packets to a monitor beside the mirror of Open vSwitch's kernel datapath: instructions per packet.

An emulated machine, whose kernel has Open vSwitch's module and pktgen, counts instructions as time (one is one
nanosecond), so that a figure is nearly the same again whatever else the host does. It says what work a packet is, not how
long that takes a real processor: memory and locks cost nothing more there. pktgen sends on `gen`, `source` receives
and its switch forwards to `receiver`, all on the one processor of the machine; a case without a switch, where
packets are dropped behind `source`, is subtracted.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time

from common import say, table
from run import FCS, Lab, mirred, nothing, open_vswitch, tap

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = f"{HERE}/../../tests/kernels"
SIZES = [64, 1518]
PACKETS = 5_000
ALONE = "dropped behind source"


def ovs(mirror):
    """Open vSwitch's kernel datapath as the switch."""
    @contextlib.contextmanager
    def started(lab, _options):
        with open_vswitch(lab, "system", mirror):
            yield
    return started


# Whether there is a bridge; what copies; copies for each packet; the case that it is compared with.
CASES = {
    ALONE: (False, nothing, 0, None),
    "bridge": (True, nothing, 0, None),
    "bridge, tap matches none": (True, tap("--match", "udp and dst port 9999"), 0, "bridge"),
    "bridge, tap matches all": (True, tap(), 1, "bridge"),
    "bridge, mirred": (True, mirred(), 1, "bridge"),
    "Open vSwitch": (False, ovs(False), 0, None),
    "Open vSwitch, its mirror": (False, ovs(True), 1, "Open vSwitch"),
}


def write(lab, path, *lines):
    """pktgen is told what to do by files, which each network namespace has for itself."""
    for line in lines:
        lab.run(["sh", "-c", f"echo '{line}' >/proc/net/pktgen/{path}"])


def send(lab, size, packets):
    """Nanoseconds of the machine's clock per packet."""
    write(lab, "kpktgend_0", "rem_device_all", "add_device gen")
    # Otherwise pktgen keeps hold of the packets that it sends, and a kernel in which a program clones one is dead
    # (BUG_ON(skb_shared(skb)) in pskb_expand_head).
    write(lab, "gen", "flag !SHARED", f"count {packets}", f"pkt_size {size - FCS}", "clone_skb 0", "delay 0", "src_min 10.9.0.1",
          "src_max 10.9.0.1", "dst 10.9.0.2", "dst_mac 02:00:00:00:00:99", "udp_src_min 1024", "udp_src_max 1123",
          "udp_dst_min 9", "udp_dst_max 9")
    write(lab, "pgctrl", "start")
    said = lab.run("cat /proc/net/pktgen/gen")
    found = re.search(r"Result: OK: (\d+)\(", said)
    sent = re.search(r"pkts-sofar: (\d+)", said)
    if not found or int(sent[1]) != packets:
        sys.exit(f"pktgen: {said}")
    return int(found[1]) * 1000 / packets


def inside(options):
    """All cases, in the machine."""
    for module in ("pktgen", "openvswitch", "veth", "bridge", "sch_ingress", "cls_u32", "act_mirred"):
        subprocess.run(["modprobe", module], check=True)
    results = {}
    for name, (bridge, case, copies, _) in CASES.items():
        with Lab(bridge=bridge) as lab, case(lab, options):
            # What comes first makes Open vSwitch's flows, and its threads have work then.
            send(lab, options.sizes[0], 1000)
            time.sleep(2)
            for size in options.sizes:
                before = lab.arrived()
                # What the machine does beside it only adds: the least of some rounds is without.
                results[name, size] = min(send(lab, size, options.packets) for _ in range(options.rounds))
                received, copied = (after - b for after, b in zip(lab.arrived(), before, strict=True))
                sent = options.packets * options.rounds
                wanted = (0 if name == ALONE else sent, copies * sent)
                if (received, copied) != wanted:
                    sys.exit(f"{name}, {size}: {received} received, {copied} copies; {wanted} expected")
        say(f"{name}: done")
    rows = []
    for name, (_, _, _, less) in CASES.items():
        cells = []
        for size in options.sizes:
            spent = results[name, size] - (results[ALONE, size] if name != ALONE else 0)
            more = f" (+{results[name, size] - results[less, size]:,.0f})" if less else ""
            cells.append(f"{spent:,.0f}{more}")
        rows.append([name, *cells])
    print(f"Instructions per packet over those of one that is dropped behind `source`; in brackets what the copy adds. "
          f"Linux {os.uname().release}\n")
    table(["frame with FCS", *options.sizes], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skua", default="../target/shipped/skua", help="the skua binary")
    parser.add_argument("--bin", help=argparse.SUPPRESS)
    parser.add_argument("--kernel", default="6.12", help="series of the machine's kernel (tests/kernels/run --list)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES", help="frames with FCS")
    parser.add_argument("--packets", type=int, default=PACKETS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.skua = os.path.abspath(options.skua)
    if options.inside:
        return inside(options)
    folder = subprocess.run([f"{KERNELS}/fetch", "--matrix", f"{KERNELS}/matrix", options.kernel], check=True,
                            text=True, stdout=subprocess.PIPE).stdout.strip()
    return subprocess.run([f"{KERNELS}/boot", "--timeout", "1500", "--cpus", "1", "--instructions", "yes", folder, "--",
                           "env", "PYTHONPATH=.:tap", sys.executable, "tap/guest.py", "--inside", "--skua", options.skua,
                           "--packets", str(options.packets), "--rounds", str(options.rounds), "--sizes", *map(str, options.sizes)],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
