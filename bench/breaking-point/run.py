#!/usr/bin/env python3
"""How many new flows per second the flow table takes before packets begin to be lost in it, and
whether what is lost above that is all counted.

Every packet begins a flow of its own. Each rate is held for --seconds against a fresh `skua run`;
its summary at the end says what was seen and lost, the generator what was sent.
"""

import json
import subprocess
import sys

from common import Failed, Namespace, arguments, finish, say, stop, table, traffic, wait_until_watching

RATES = [50_000, 100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 800_000, 1_000_000]


def summary_of(stderr):
    """The last JSON object on standard error."""
    for line in reversed(stderr.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise Failed(f"no summary: {stderr.strip()[-300:]}")


def lost_packets(summary):
    """Packets lost by cause, without what the user chose to leave out."""
    return {cause: counters["packets"] for cause, counters in summary["lost"].items() if counters["packets"]}


def try_rate(options, rate):
    """One rate; returns what happened."""
    packets = int(rate * options.seconds)
    with Namespace("break") as namespace:
        agent = subprocess.Popen(
            namespace.command([options.skua, "run", "--interface", "bn-a", "--summary", "json", *options.skua_args]),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_until_watching(agent)
            sent = traffic(options, namespace, timeout=10 * options.seconds + 60, dev="bn-b", mode="socket",
                           packets=packets, rate=rate, new_flows=True, cpus="0")
        finally:
            stop(agent, timeout=60)
        summary = summary_of(agent.stderr.read())
    lost = lost_packets(summary)
    in_flows = summary["in_flows"]["packets"]
    return {"rate": rate, "reached": sent["packets"] / sent["seconds"], "sent": sent["packets"],
            "delivered": sent["interface_packets"], "in_flows": in_flows, "lost": lost,
            "unaccounted": sent["interface_packets"] - in_flows - sum(lost.values())}


def main():
    parser = arguments(__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, metavar="PPS")
    parser.add_argument("--seconds", type=float, default=10, help="how long each rate is held")
    parser.add_argument("skua_args", nargs="*", help="more arguments for skua run, after --")
    options = parser.parse_args()

    results = []
    try:
        for rate in options.rates:
            results.append(try_rate(options, rate))
            say(f"{rate:,}/s: {results[-1]}")
    except (Failed, FileNotFoundError, subprocess.CalledProcessError) as reason:
        say(f"stopped: {reason}")
    if not results:
        sys.exit(1)
    table(["new flows/s wanted", "reached", "packets", "lost", "share", "by cause", "unaccounted"],
          [[f"{r['rate']:,}", f"{r['reached']:,.0f}", f"{r['sent']:,}", f"{sum(r['lost'].values()):,}",
            f"{sum(r['lost'].values()) / r['sent']:.2%}", " ".join(r["lost"]) or "-", r["unaccounted"]]
           for r in results])
    held = [r["reached"] for r in results if not r["lost"] and not r["unaccounted"]]
    if held:
        print(f"Nothing lost up to {max(held):,.0f} new flows per second.")
    finish(options, "breaking-point", results)


if __name__ == "__main__":
    main()
