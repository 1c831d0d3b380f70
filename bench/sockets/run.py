#!/usr/bin/env python3
"""Cost of watching sockets: CPU per TCP connection in the kernel and in the process, at several
rates, with many idle connections, and during a bulk transfer.

In each round everything is started in turn on the same load. Kernel time is what the kernel counts
for the programs, less what empty programs at the same hooks take; the load's own CPU time, with
statistics off, shows what this leaves out.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

import bpf_stats
from common import (Failed, Namespace, arguments, cpu_seconds, finish, ready, run_ns, say, spread, status, stop,
                    table)

AS_FAST_AS_POSSIBLE = 0
IN_A_GROUP = 12  # most connections that are idle in one process, thousands


def subjects(options):
    """What is measured: name -> command; none: nothing."""
    trace = options.trace
    found = {
        "nothing": None,
        "empty programs": [f"{options.bin}/hooks", f"{options.bin}/sockets/empty.bpf.o"],
        "skua, event": [trace],
        "skua, aggregate": [trace, "--aggregate"],
        "tcplife": tcplife(),
    }
    if not options.peers or not found["tcplife"]:
        del found["tcplife"]
    return found


def tcplife():
    """Debian's libbpf tool, in a mount namespace with tracefs: not all hosts have it mounted."""
    path = next((p for p in ("/usr/sbin/tcplife", shutil.which("tcplife")) if p and os.path.exists(p)), None)
    if not path:
        say("tcplife: left out: not installed (Debian: libbpf-tools)")
        return None
    mount = "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing"
    # Its lines go into a file that is no disk's, as ours go nowhere.
    return ["unshare", "--mount", "sh", "-c", f'{mount}; exec "$0" >/dev/null', path]


@contextlib.contextmanager
def attached(command):
    """The program under test; yields (process, what it says)."""
    if command is None:
        yield None, {}
        return
    if command[0] != "unshare":
        with ready(command) as started:
            yield started
        return
    # Says nothing when it is ready: it is when it has programs and sleeps.
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and process.poll() is None and not bpf_stats.programs(process.pid):
            time.sleep(0.2)
        time.sleep(1)
        if process.poll() is not None:
            raise Failed(process.stderr.read().strip().splitlines()[-1])
        yield process, {}
    finally:
        stop(process)
        process.stderr.close()


def connections(options, namespace, **settings):
    """Runs the load and returns what it says."""
    command = [f"{options.bin}/connections"]
    for name, value in settings.items():
        command += ["--" + name, str(value)]
    output = subprocess.run(namespace.command(command), check=True, timeout=120, text=True, stdout=subprocess.PIPE)
    result = json.loads(output.stdout)
    clients, servers = result["clients"], result["servers"]
    if clients["connections"] != servers["connections"] or clients["bytes_sent"] != servers["bytes_received"]:
        raise Failed(f"the load was not clean: {output.stdout}")
    return result


def load_cpu_ns(result):
    """CPU time of both sides per connection."""
    total = sum(result[side][kind] for side in ("clients", "servers") for kind in ("cpu_user", "cpu_system"))
    return 1e9 * total / result["clients"]["connections"]


def machine_busy():
    """CPU seconds that the whole machine worked since its start."""
    with open("/proc/stat") as f:
        fields = [int(v) for v in f.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def settings_of(options, rate):
    """The load's options. Both processors have something to do when it goes as fast as it can."""
    if rate == AS_FAST_AS_POSSIBLE:
        return {"count": 10_000_000, "seconds": options.seconds, "clients": 2}
    return {"rate": rate, "count": int(rate * options.seconds), "seconds": 4 * options.seconds}


def measure(options, namespace, command, rate, note):
    """One program at one rate."""
    settings = settings_of(options, rate) | {"close": options.close, "bytes": options.bytes, "reply": options.reply}
    with attached(command) as (process, info):
        if process:
            with bpf_stats.enabled():
                before, cpu = bpf_stats.programs(process.pid), run_ns(process.pid)
                result = connections(options, namespace, **settings)
                time.sleep(1.2)  # a drain
                programs = bpf_stats.since(before, bpf_stats.programs(process.pid))
                cpu = run_ns(process.pid) - cpu
            count = result["clients"]["connections"]
            note("programs", {p: {"runs": r / count, "ns": ns / count, "missed": missed / count}
                              for p, (r, ns, missed) in programs.items() if r or missed})
            note("process", cpu / count)
        busy = machine_busy()
        result = connections(options, namespace, **settings)
        busy = machine_busy() - busy
        count, seconds = result["clients"]["connections"], result["clients"]["seconds"]
        note("load", load_cpu_ns(result))
        note("machine", 1e9 * busy / count)
        note("rate", count / seconds)
    end = info.get("end")
    if end:
        note("lost", sum(end["losses"].values()))


def kernel_ns(programs, empty_ns):
    """Kernel time per connection less what as many runs of an empty program take."""
    return sum(p["ns"] - p["runs"] * empty_ns for p in programs.values())


def at_rates(options, namespace):
    """All programs at all rates: (rate, program) -> measurement -> samples."""
    samples, tested, started = {}, subjects(options), time.monotonic()
    for number in range(options.rounds):
        for rate in options.rates:
            for name, command in list(tested.items()):
                cell = samples.setdefault((rate, name), {})
                try:
                    measure(options, namespace, command, rate, lambda m, v: cell.setdefault(m, []).append(v))
                except (Failed, FileNotFoundError) as reason:
                    say(f"{name}: left out: {reason}")
                    del tested[name]
        say(f"round {number + 1} of {options.rounds}, {time.monotonic() - started:.0f} s")
    for (rate, name), cell in samples.items():
        # The empty programs of the same round, so that both met the same machine.
        empty = [sum(p["ns"] for p in programs.values()) / sum(p["runs"] for p in programs.values())
                 for programs in samples[rate, "empty programs"].get("programs", [])]
        cell["kernel"] = [kernel_ns(p, e if name != "empty programs" else 0)
                          for p, e in zip(cell.get("programs", []), empty)]
        cell["runs"] = [sum(p["runs"] for p in programs.values()) for programs in cell.get("programs", [])]
    return samples


def cell_text(values, form="{:,.0f}"):
    """Median (minimum to maximum)."""
    if not values:
        return ""
    s = spread(values)
    return f"{form.format(s['median'])} ({form.format(s['min'])} to {form.format(s['max'])})"


def report_rates(samples):
    """One table per rate."""
    for rate in dict.fromkeys(r for r, _ in samples):
        cells = {name: cell for (r, name), cell in samples.items() if r == rate and cell.get("rate")}
        reached = cell_text(cells["nothing"]["rate"])
        said = f"{rate:,} connections per second" if rate else "As many connections as the machine can do"
        print(f"**{said}** (reached without a program: {reached})\n")
        rows = []
        for name, cell in cells.items():
            both = [k + p for k, p in zip(cell["kernel"], cell.get("process", []))]
            shares = [100 * v / 1e9 * (rate or 50_000) for v in both]
            ratio = [a / b for a, b in zip(cell["load"], cells["nothing"]["load"])]
            rows.append([name, cell_text(cell["runs"], "{:.1f}"), cell_text(cell["kernel"]),
                         cell_text(cell.get("process", [])), cell_text(shares, "{:.2f}%"),
                         cell_text(cell["load"]), cell_text(ratio, "{:.2f}"), cell_text(cell["rate"])])
        table(["", "runs", "kernel, ns", "process, ns",
               "share of a core" + ("" if rate else ", at 50,000/s"), "load's CPU, ns", "ratio", "rate"], rows)
        for name, cell in cells.items():
            if not cell.get("programs"):
                continue
            last = cell["programs"][-1]
            say(f"{name} at {rate}: " + ", ".join(f"{p} {v['runs']:.2f} x {v['ns'] / max(v['runs'], 1e-9):.0f} ns"
                                                   + (f" missed {v['missed']:.5f}" if v["missed"] else "")
                                                   for p, v in last.items()))


def idle(options, namespace):
    """CPU share with many open connections: without looks, and of a look."""
    processes = -(-options.idle // (1000 * IN_A_GROUP))
    load = subprocess.Popen(namespace.command([
        f"{options.bin}/connections", "--idle", "--count", str(options.idle), "--clients", str(min(processes, 16)),
        "--servers", str(min(processes, 16))]), stdout=subprocess.PIPE, text=True)
    results = {}
    try:
        if not select.select([load.stdout], [], [], 120)[0]:
            raise Failed("the idle connections are not open after 120 s")
        results["open"] = json.loads(load.stdout.readline())["open"]
        seconds = 5
        for name, command in subjects(options).items():
            if command is None or name == "empty programs":
                continue
            for _ in range(options.rounds):
                with attached(command) as (process, _), bpf_stats.enabled():
                    time.sleep(1.5)
                    before, cpu = bpf_stats.programs(process.pid), run_ns(process.pid)
                    time.sleep(seconds)
                    ns = sum(ns for _, ns, _ in bpf_stats.since(before, bpf_stats.programs(process.pid)).values())
                    results.setdefault(name, []).append(100 * (ns + run_ns(process.pid) - cpu) / 1e9 / seconds)
        for _ in range(options.rounds):
            with ready([options.trace, "--look", "1000"]) as (process, info):
                time.sleep(0.5)
                cpu = run_ns(process.pid)
                time.sleep(seconds)
                cpu, resident = run_ns(process.pid) - cpu, status(process.pid, "VmRSS")
            results.setdefault("look_ms", []).append(cpu / 1e6 / seconds)
            results.setdefault("look_sockets", []).append(info["end"]["looked_at"] / info["end"]["looks"])
            results.setdefault("resident_kib", []).append(resident)
            for name, flags in (("ss_tin_ms", "-tin"), ("ss_tinp_ms", "-tinp")):
                before = os.times()
                subprocess.run(namespace.command(["ss", flags]), stdout=subprocess.DEVNULL, check=True)
                after = os.times()
                results.setdefault(name, []).append(
                    1000 * (after.children_user + after.children_system
                            - before.children_user - before.children_system))
    finally:
        stop(load)
        load.stdout.close()
    return results


def report_idle(results):
    """Shares of a core."""
    print(f"**{results['open']:,} idle connections** ({spread(results['look_sockets'])['median']:,.0f} sockets)\n")
    rows = [[name, cell_text(values, "{:.4f}%")] for name, values in results.items()
            if name not in ("open", "look_sockets", "resident_kib") and not name.endswith("_ms")]
    rows += [["one look at all, ms of CPU", cell_text(results["look_ms"])],
             ["  ss -tin, ms", cell_text(results["ss_tin_ms"])],
             ["  ss -tinp, ms", cell_text(results["ss_tinp_ms"])],
             ["resident memory, MiB", cell_text([v / 1024 for v in results["resident_kib"]], "{:.1f}")]]
    table(["", "share of a core"], rows)


def bulk(options, namespace):
    """One connection as fast as it goes, with and without programs."""
    results = {}
    for _ in range(options.rounds):
        for name, command in subjects(options).items():
            if name == "empty programs":
                continue
            with attached(command) as (process, _), contextlib.ExitStack() as stack:
                before = {}
                if process:
                    stack.enter_context(bpf_stats.enabled())
                server = subprocess.Popen(namespace.command(["iperf3", "--server", "--one-off", "--port", "7071"]),
                                          stdout=subprocess.DEVNULL)
                try:
                    time.sleep(0.3)
                    if process:
                        before = bpf_stats.programs(process.pid)
                    output = namespace.run(["iperf3", "--client", "127.0.0.1", "--port", "7071", "--json",
                                            "--time", str(options.seconds)])
                    server.wait(10)
                finally:
                    if server.poll() is None:
                        server.send_signal(signal.SIGTERM)
                        server.wait()
                end = json.loads(output)["end"]
                cell = results.setdefault(name, {"gbit": [], "cpu_per_gb": [], "runs": [], "gb": []})
                if process:
                    cell["runs"].append(sum(r for r, _, _ in bpf_stats.since(
                        before, bpf_stats.programs(process.pid)).values()))
                gigabytes = end["sum_received"]["bytes"] / 1e9
                cell["gbit"].append(end["sum_received"]["bits_per_second"] / 1e9)
                cell["gb"].append(gigabytes)
                use = end["cpu_utilization_percent"]
                cell["cpu_per_gb"].append((use["host_total"] + use["remote_total"]) / 100
                                          * end["sum_received"]["seconds"] / gigabytes)
    return results


def report_bulk(results):
    """Throughput and CPU beside those without a program in the same round."""
    print("**Bulk transfer** (iperf3, one connection on loopback)\n")
    base, rows = results["nothing"], []
    for name, cell in results.items():
        def ratio(what):
            return cell_text([a / b for a, b in zip(cell[what], base[what])], "{:.2f}")
        rows.append([name, cell_text(cell["gbit"], "{:.1f}"), ratio("gbit"), cell_text(cell["cpu_per_gb"], "{:.3f}"),
                     ratio("cpu_per_gb"), cell_text(cell["gb"], "{:.1f}"), cell_text(cell["runs"])])
    # Programs see the sockets of others, too: the fewest runs are those of the transfer, or still too many.
    table(["", "Gbit/s", "ratio", "CPU s per GB", "ratio", "GB", "runs of programs"], rows)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--trace", default="../target/shipped/examples/socket_trace", help="the tracer's driver")
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 10_000, AS_FAST_AS_POSSIBLE], metavar="N",
                        help="connections per second; 0: as many as the machine can do")
    parser.add_argument("--seconds", type=int, default=3, help="of load for each measurement")
    parser.add_argument("--bytes", type=int, default=100, help="from the client")
    parser.add_argument("--reply", type=int, default=0, help="bytes from the server")
    parser.add_argument("--close", default="client", choices=["client", "server", "rst"])
    parser.add_argument("--idle", type=int, default=50_000, help="idle connections")
    parser.add_argument("--only", nargs="+", choices=["rates", "idle", "bulk"], default=["rates", "idle", "bulk"])
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="Skua alone")
    options = parser.parse_args()

    results = {}
    with Namespace("sockets") as namespace:
        # Where TIME-WAIT finds no room, the last FIN is answered by a RST.
        namespace.run(["sysctl", "-qw", "net.core.somaxconn=65535", "net.ipv4.tcp_max_syn_backlog=65535",
                       "net.ipv4.tcp_max_tw_buckets=4000000"])
        try:
            if "rates" in options.only:
                samples = at_rates(options, namespace)
                report_rates(samples)
                results["rates"] = [{"wanted": r, "program": n, **cell} for (r, n), cell in samples.items()]
            if "idle" in options.only:
                results["idle"] = idle(options, namespace)
                report_idle(results["idle"])
            if "bulk" in options.only:
                results["bulk"] = bulk(options, namespace)
                report_bulk(results["bulk"])
        except (Failed, FileNotFoundError, subprocess.CalledProcessError) as reason:
            sys.exit(f"sockets: {reason}")
    finish(options, "sockets", results)


if __name__ == "__main__":
    main()
