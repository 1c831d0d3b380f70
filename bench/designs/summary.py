#!/usr/bin/env python3
"""Tables from the JSON lines of `designs` and `drain`: minimum, (median, maximum) of the rounds."""
import json
import statistics
import sys
from collections import defaultdict

cells, drains, checks = defaultdict(list), defaultdict(list), {}
for path in sys.argv[1:]:
    for line in open(path):
        m = json.loads(line)
        if m["mode"] == "drain":
            drains[m["design"], m["way"]].append(m)
        elif m["what"] == "check":
            checks[m["mode"], m["design"], m["flows"]] = m
        else:
            cells[m["mode"], m["what"], m["cpus"], m["flows"], m["design"]].append(m["ns"])

designs = list(dict.fromkeys(k[4] for k in cells))
for mode, what, cpus in dict.fromkeys(k[:3] for k in cells):
    flows = sorted({k[3] for k in cells if k[:3] == (mode, what, cpus)})
    print(f"\n{mode}, {what}, {cpus} CPU: ns per packet over `empty`, minimum (median, maximum)\n")
    print("| design | " + " | ".join(f"{f:,}" for f in flows) + " |")
    print("|---" * (len(flows) + 1) + "|")
    for d in designs:
        row = []
        for f in flows:
            ns, base = cells[mode, what, cpus, f, d], cells[mode, what, cpus, f, "empty"]
            zero = 0 if d == "empty" else min(base)
            row.append(f"{min(ns) - zero:.0f} ({statistics.median(ns) - zero:.0f}, {max(ns) - zero:.0f})")
        print(f"| {d} | " + " | ".join(row) + " |")

if drains:
    print("\n| design | way | CPU ns per entry: minimum (median, maximum) | wall ns | user share | resident memory |")
    print("|---|---|---|---|---|---|")
for (d, way), ms in drains.items():
    cpu = [m["cpu_ns"] for m in ms]
    user = statistics.median(m["user_us"] * 1e3 / m["entries"] / m["cpu_ns"] for m in ms)
    print(f"| {d} | {way} | {min(cpu):.0f} ({statistics.median(cpu):.0f}, {max(cpu):.0f}) "
          f"| {statistics.median(m['wall_ns'] for m in ms):.0f} | {user:.0%} "
          f"| +{max(m['resident_kib'] for m in ms) / 1024:.1f} MiB |")

print("\n| run | design | flows | max_entries | packets | entries | lost, counted | unaccounted |\n|---|---|---|---|---|---|---|---|")
for (mode, d, f), m in checks.items():
    print(f"| {mode} | {d} | {f:,} | {m['max_entries']:,} | {m['sent']:,} | {m['entries']:,} | {m['lost']:,} | {m['missing']:,} |")
