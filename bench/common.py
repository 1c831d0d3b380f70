"""What the benchmarks share: namespaces, programs under test, CPU clocks, tables."""

import argparse
import contextlib
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import time

CLOCK_TICK = os.sysconf("SC_CLK_TCK")


def arguments(description, **defaults):
    """Parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bin", default="../target/bench", help="folder of the built C programs")
    parser.add_argument("--skua", default="../target/shipped/skua", help="the skua binary")
    parser.add_argument("--flow-hook", default="../target/shipped/examples/flow_hook", help="the example flow_hook")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    parser.add_argument("--rounds", type=int, default=defaults.get("rounds", 5))
    # So that namespaces and programs under test go in either case.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    return parser


def say(text):
    """Progress, on standard error: the table alone is on standard output."""
    print(text, file=sys.stderr, flush=True)


def spread(values):
    """Minimum, median and maximum."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def table(header, rows):
    """Prints a Markdown table with aligned columns."""
    cells = [[str(c) for c in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for number, row in enumerate(cells):
        print("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    print()


def machine():
    """What the figures were measured on."""
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())
    return {"kernel": platform.release(), "cpu": model, "cpus": os.cpu_count(), "load": os.getloadavg()[0]}


def finish(options, name, results):
    """Writes the JSON file."""
    if options.json:
        with open(options.json, "w") as f:
            json.dump({"benchmark": name, "machine": machine(), "results": results}, f, indent=1)
            f.write("\n")


class Namespace:
    """A network namespace with a veth pair bn-a, bn-b in it; gone at the end."""

    def __init__(self, name):
        self.name = f"bn-{name}-{os.getpid()}"

    def __enter__(self):
        if os.geteuid() != 0:
            sys.exit("the benchmarks need root: network namespaces and BPF programs")
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        try:
            # Without IPv6 nothing speaks on the interfaces but the generator.
            self.run(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"])
            self.run(["ip", "link", "set", "lo", "up"])
            self.run(["ip", "link", "add", "bn-a", "type", "veth", "peer", "name", "bn-b"])
            self.run(["ip", "link", "set", "bn-a", "up"])
            self.run(["ip", "link", "set", "bn-b", "up"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], check=False)

    def command(self, command):
        """The command, to be run inside. `ip netns exec` would hide bpffs and tracefs."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *command]

    def run(self, command, timeout=60):
        """Runs a command inside and returns what it printed."""
        return subprocess.run(self.command(command), check=True, timeout=timeout, text=True,
                              stdout=subprocess.PIPE).stdout


def traffic(options, namespace, timeout=120, **settings):
    """Runs the generator; keyword arguments are its options. Returns its JSON."""
    command = [f"{options.bin}/traffic", "--netns", namespace.name]
    for name, value in settings.items():
        if value is True:
            command.append("--" + name.replace("_", "-"))
        elif value is not None and value is not False:
            command += ["--" + name.replace("_", "-"), str(value)]
    output = subprocess.run(command, check=True, timeout=timeout, text=True, stdout=subprocess.PIPE).stdout
    return json.loads(output)


class Failed(Exception):
    """A program under test did not start."""


@contextlib.contextmanager
def ready(command, timeout=30):
    """Runs a program that prints a JSON line when it is ready; SIGINT ends it. Yields (process, line);
    the line's "end" is what it prints at its end, if that is JSON."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if not select.select([process.stdout], [], [], timeout)[0]:
            raise Failed(f"{command[-1]}: not ready after {timeout} s")
        line = process.stdout.readline()
        if not line:
            raise Failed(process.stderr.read().strip() or f"ended with status {process.wait()}")
        info = json.loads(line)
        yield process, info
        stop(process)
        with contextlib.suppress(ValueError):
            info["end"] = json.loads(process.stdout.read())
    finally:
        stop(process)
        process.stdout.close()
        process.stderr.close()


def stop(process, timeout=30):
    """SIGINT, and SIGKILL when that does not help."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_seconds(pid):
    """User and system CPU time of a process with all its threads."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return int(fields[11]) / CLOCK_TICK, int(fields[12]) / CLOCK_TICK


def run_ns(pid):
    """CPU time of a process in ns, exact (main thread only)."""
    with open(f"/proc/{pid}/schedstat") as f:
        return int(f.read().split()[0])


def status(pid, field):
    """A number out of /proc/PID/status."""
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(field + ":"))


def switches(pid):
    """How often the threads of a process went to sleep of their own accord: wake-ups."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError):
            total += status(f"{pid}/task/{thread}", "voluntary_ctxt_switches")
    return total


def wait_until_watching(process, timeout=30):
    """Until `skua run` says on standard output that it watches."""
    if not select.select([process.stdout], [], [], timeout)[0]:
        raise Failed(f"{process.args[-1]}: not ready after {timeout} s")
    if not process.stdout.readline():
        raise Failed(f"{process.args[-1]}: ended with status {process.wait()}")
