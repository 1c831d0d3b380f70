#!/usr/bin/env python3
"""Cost of the address set in the kernel: ns of CPU per packet of the flow program by test run.

Packets of so many flows come in any order, their sources in 11.0.0.0/8. Each round starts every
case anew and measures them in turn; a cell is the median (minimum to maximum) of the rounds.
"""

import os
import sys
import tempfile
import time

from common import Namespace, arguments, finish, ready, say, spread, table, traffic

SIZES = [1, 100, 10_000, 100_000]
PREFIXES = 10_000
PACKETS = 2_000_000


def prefixes(hit):
    """Prefixes of many lengths; some of them hold every source, or none does."""
    found = [f"{20 + n % 100}.{n // 100}.{n % 251}.{8 * (n % 32)}/29" for n in range(PREFIXES // 2)]
    # Neighbours of the sources, one after the other, so that the way down the trie is long.
    first = 11 if hit else 12
    found += [f"{first}.{n // 256}.{n % 256}.0/24" for n in range(PREFIXES - len(found))]
    return found


def cases(folder):
    """name -> arguments of flow_hook."""
    files = {}
    for name, hit in (("beside", False), ("on the way", True)):
        files[name] = os.path.join(folder, name.replace(" ", "-"))
        with open(files[name], "w") as f:
            f.write("\n".join(prefixes(hit)))
    large = ["--max-addresses", "65536"]
    return {
        "no address sets": [],
        "empty set": large,
        "1 prefix": [*large, "--exclude-net", "192.0.2.0/24"],
        f"{PREFIXES:,} prefixes, none near": [*large, "--exclude-net", "@" + files["beside"]],
        f"{PREFIXES:,} prefixes, all left out": [*large, "--exclude-net", "@" + files["on the way"]],
    }


def main():
    parser = arguments(__doc__)
    parser.add_argument("--flows", type=int, nargs="+", default=SIZES, metavar="N")
    options = parser.parse_args()
    samples = {}
    started = time.monotonic()
    with Namespace("addresses") as namespace, tempfile.TemporaryDirectory() as folder:
        tested = cases(folder)
        for number in range(options.rounds):
            for flows in options.flows:
                for name, more in tested.items():
                    command = [options.flow_hook, "--interface", "bn-a", *more]
                    with ready(namespace.command(command)) as (_, info):
                        for new in (True, False):
                            ns = traffic(options, namespace, dev="bn-a", mode="testrun", prog_id=info["prog_id"],
                                         flows=flows, packets=flows if new else PACKETS, new_flows=new,
                                         cpus="0")["cpu_ns_per_packet"]
                    samples.setdefault((flows, name), []).append(ns)
            say(f"round {number + 1} of {options.rounds}, {time.monotonic() - started:.0f} s")
    rows = []
    for name in tested:
        cells = [spread(samples[flows, name]) for flows in options.flows]
        rows.append([name, *[f"{s['median']:.0f} ({s['min']:.0f} to {s['max']:.0f})" for s in cells]])
    table(["flows", *[f"{flows:,}" for flows in options.flows]], rows)
    finish(options, "addresses", [{"flows": f, "case": n, "ns": v, **spread(v)} for (f, n), v in samples.items()])


if __name__ == "__main__":
    sys.exit(main())
