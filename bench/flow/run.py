#!/usr/bin/env python3
"""Cost of a flow probe in the kernel: ns of CPU per packet, end to end on veth and by test run.

Each round starts every program anew and measures them in turn, so that a noisy minute hits all of
them; a cell is the median (minimum to maximum) of the rounds.
"""

import contextlib
import subprocess
import sys
import time

from common import Failed, Namespace, arguments, finish, ready, run_ns, say, spread, table, traffic

SIZES = [1, 100, 10_000, 100_000, 500_000, 1_000_000]
PACKETS = 600_000  # per measurement: a live test run has 20-29 ms of fixed cost


def subjects(options):
    """What is measured: name -> command that attaches it to bn-a, as a function of the table's size."""
    def hook(path, program, *maps):
        return lambda entries: [f"{options.bin}/hook", "--dev", "bn-a", "--object", path, "--program", program,
                                *[a for m in maps for a in ("--map", f"{m}={entries}")]]

    def flow_hook(path):
        return lambda entries: [path, "--interface", "bn-a", "--max-entries", str(entries)]

    found = {
        "no program": None,
        "empty program": hook(f"{options.bin}/empty.bpf.o", "empty"),
        "parse only": hook(f"{options.bin}/parse.bpf.o", "parse"),
        "skua": flow_hook(options.flow_hook),
        "AF_PACKET": lambda entries: ["taskset", "-c", "1", f"{options.bin}/afpacket", "--dev", "bn-a"],
    }
    if options.before:
        found["skua before"] = flow_hook(options.before)
    if options.peer:
        found["peer"] = hook(options.peer, options.peer_program, options.peer_map)
    if options.only:
        found = {name: s for name, s in found.items() if name in ("empty program", *options.only)}
    return found


@contextlib.contextmanager
def attached(namespace, command):
    """The program on bn-a; yields (process, its JSON)."""
    if command is None:
        yield None, {}
    else:
        with ready(namespace.command(command)) as started:
            yield started


def live(options, namespace, process, **settings):
    """Packets injected as if received by bn-a: the whole way through the stack. A reader in user
    space works for the packets as well: its CPU time is added."""
    before = run_ns(process.pid) if process else 0
    result = traffic(options, namespace, dev="bn-a", mode="inject", **settings)
    if not process:
        return result["cpu_ns_per_packet"]
    time.sleep(0.05)
    return result["cpu_ns_per_packet"] + (run_ns(process.pid) - before) / result["packets"]


def test_run(options, namespace, program, **settings):
    """The program alone, packets handed to it by a tail call (part of the empty program's figure, too)."""
    return traffic(options, namespace, dev="bn-a", mode="testrun", prog_id=program, **settings)["cpu_ns_per_packet"]


def measure(options, namespace, name, command, flows, note):
    """All measurements of one program with one number of flows; calls note(measurement, ns)."""
    entries = max(500_000, flows)
    # As packets come one after the other, `miss` fills the table for `hit`.
    with attached(namespace, command(entries) if command else None) as (process, info):
        miss = live(options, namespace, process, flows=flows, packets=flows, new_flows=True, cpus="0")
        if flows >= 100_000:
            note("end to end, miss, 1 CPU", miss)
        for cpus in (1, 2):
            ns = live(options, namespace, process, flows=flows, packets=PACKETS * cpus, cpus="0,1"[:2 * cpus - 1])
            note(f"end to end, hit, {cpus} CPU", ns)
        program = info.get("prog_id")
        if program:
            for cpus in (1, 2):
                ns = test_run(options, namespace, program, flows=flows, packets=PACKETS * cpus,
                              cpus="0,1"[:2 * cpus - 1])
                note(f"test run, hit, {cpus} CPU", ns)
    end = info.get("end")
    if end:
        note("lost by the reader, % of packets", 100 * end["dropped"] / (end["packets"] + end["dropped"]))
    if not program or flows < 10_000:
        return
    for cpus in (1, 2):
        with attached(namespace, command(entries)) as (_, info):
            ns = test_run(options, namespace, info["prog_id"], packets=flows, new_flows=True,
                          cpus="0,1"[:2 * cpus - 1])
            note(f"test run, miss, {cpus} CPU", ns)


def report(samples, names):
    """One table per measurement, in ns over the empty program; that itself and no program as they are."""
    for measurement in dict.fromkeys(m for m, _, _ in samples):
        sizes = sorted({f for m, f, _ in samples if m == measurement})
        unit = "" if measurement.startswith("lost") else ": ns of CPU per packet; below the empty program: increase over it"
        print(f"**{measurement}**{unit}\n")
        rows = []
        for name in names:
            row = [name]
            for flows in sizes:
                values = samples.get((measurement, flows, name))
                if not values:
                    row.append("")
                    continue
                base = 0
                if name not in ("no program", "empty program") and unit:
                    base = spread(samples[measurement, flows, "empty program"])["median"]
                s = spread(values)
                row.append(f"{s['median'] - base:+.0f} ({s['min'] - base:.0f} to {s['max'] - base:.0f})"
                           if base else f"{s['median']:.0f} ({s['min']:.0f} to {s['max']:.0f})")
            if any(row[1:]):
                rows.append(row)
        table(["flows", *[f"{f:,}" for f in sizes]], rows)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--flows", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--minutes", type=float, default=15, help="begin no measurement after that many")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs to measure beside the empty one")
    parser.add_argument("--before", metavar="PATH", help="the example flow_hook of another version")
    parser.add_argument("--peer", metavar="PATH", help="object file of another probe")
    parser.add_argument("--peer-program", default="tcx_ingress_flow_parse", help="its program for tc ingress")
    parser.add_argument("--peer-map", default="aggregated_flows", help="its table, made as large as ours")
    options = parser.parse_args()

    tested = subjects(options)
    samples = {}
    started = time.monotonic()
    # Rounds outside, so that a run that is cut short has measured everything a few times.
    with Namespace("flow") as namespace:
        for number in range(options.rounds):
            for flows in options.flows:
                for name, command in list(tested.items()):
                    if number and time.monotonic() - started > 60 * options.minutes:
                        break
                    try:
                        measure(options, namespace, name, command, flows,
                                lambda m, ns: samples.setdefault((m, flows, name), []).append(ns))
                    except (Failed, FileNotFoundError) as reason:
                        say(f"{name}: left out: {reason}")
                        del tested[name]
                    except subprocess.CalledProcessError as reason:
                        sys.exit(f"{name}: {reason}")
            say(f"round {number + 1} of {options.rounds}, {time.monotonic() - started:.0f} s")
    report(samples, tested)
    finish(options, "flow", [{"measurement": m, "flows": f, "program": n, "ns": v, **spread(v)}
                             for (m, f, n), v in samples.items()])


if __name__ == "__main__":
    main()
