#!/usr/bin/env python3
"""Cost of steering: the program alone by test run, and packets that it sends on to a pod, beside the
same detector in user space.

Each round measures everything in turn; a cell is the median (minimum to maximum) of the rounds.
"""

import json
import os
import subprocess
import sys
import time

from common import arguments, finish, ready, say, spread, table

ALONE = 4_000_000
LIVE = 600_000  # per measurement: a live test run has 20-29 ms of fixed cost


def run(options, **settings):
    """One measurement; keyword arguments are options of `steer`."""
    command = [f"{options.bin}/steer", "--feed", f"{options.bin}/feed.bpf.o"]
    for name, value in settings.items():
        if value is True:
            command.append("--" + name.replace("_", "-"))
        elif value not in (None, False):
            command += ["--" + name.replace("_", "-"), str(value)]
    output = subprocess.run(command, check=True, timeout=120, text=True, stdout=subprocess.PIPE).stdout
    return json.loads(output)


def alone(options, note):
    """The programs by test run."""
    product, lock = f"{options.bin}/steer.bpf.o", f"{options.bin}/locked.bpf.o"
    one = {"packets": ALONE, "cpus": "0"}
    two = {"packets": ALONE, "cpus": "0,1"}
    for cpus, shape in (("1 CPU", one), ("2 CPUs, a channel each", {**two, "apart": True}),
                        ("2 CPUs, one channel", two)):
        base = run(options, **shape)["cpu_ns_per_packet"]
        note("empty program", cpus, base)
        for name, settings in (("skua", {"object": product, "value": "unsigned"}),
                               ("with a spin lock", {"object": lock, "value": "unsigned"})):
            note(name + ", integer", cpus, run(options, **shape, **settings)["cpu_ns_per_packet"] - base)
    base = run(options, **one)["cpu_ns_per_packet"]
    for value in ("double", "decimal"):
        ns = run(options, **one, object=product, value=value)["cpu_ns_per_packet"] - base
        note(f"skua, {value}", "1 CPU", ns)
    ns = run(options, **one, object=product, value="unsigned", fire=True, target="lo")["cpu_ns_per_packet"] - base
    note("skua, integer, steered", "1 CPU", ns)
    ns = run(options, **one, object=product, value="unsigned", fire=True, target="lo",
             looks=f"{options.bin}/device.bpf.o")["cpu_ns_per_packet"] - base
    note("the same, target looked at", "1 CPU", ns)


class Pods:
    """A host with gp0, where packets come in, and two pods; gone at the end."""

    def __init__(self):
        self.host, self.a, self.b, self.far = (f"bn-steer-{os.getpid()}-{n}" for n in ("h", "a", "b", "g"))

    def __enter__(self):
        for name in (self.host, self.a, self.b, self.far):
            subprocess.run(["ip", "netns", "add", name], check=True)
            for what in ("all", "default"):
                subprocess.run(["nsenter", f"--net=/run/netns/{name}", "sysctl", "-qw",
                                f"net.ipv6.conf.{what}.disable_ipv6=1"], check=True)
        pairs = (("gp0", self.far, "02:00:00:00:01:01"), ("pa0", self.a, "02:00:00:00:00:0a"),
                 ("pb0", self.b, "02:00:00:00:00:0b"))
        for i, (near, pod, mac) in enumerate(pairs, 1):
            self.ip(self.host, f"link add {near} type veth peer name eth0 address {mac} netns {pod}")
            self.ip(self.host, f"link set {near} up")
            self.ip(pod, f"addr add 10.{i}.0.2/24 dev eth0")
            self.ip(pod, "link set eth0 up")
            self.ip(self.host, f"addr add 10.{i}.0.254/24 dev {near}")
            self.ip(self.host, f"neigh replace 10.{i}.0.2 lladdr {mac} dev {near} nud permanent")
        links = json.loads(subprocess.run(["ip", "-n", self.host, "-j", "link", "show", "gp0"], check=True,
                                          text=True, stdout=subprocess.PIPE).stdout)
        self.mac = links[0]["address"]
        return self

    def __exit__(self, *_):
        for name in (self.host, self.a, self.b, self.far):
            subprocess.run(["ip", "netns", "del", name], check=False)

    @staticmethod
    def ip(name, text):
        subprocess.run(["ip", "-n", name, *text.split()], check=True)

    def bridge(self, on):
        """The usual way of packets: over a bridge to pod A, or to the host itself."""
        if on:
            self.ip(self.host, "link add br0 type bridge")
            self.ip(self.host, "link set br0 up")
            for port in ("gp0", "pa0"):
                self.ip(self.host, f"link set {port} master br0")
            subprocess.run(["nsenter", f"--net=/run/netns/{self.host}", "bridge", "fdb", "replace",
                            "02:00:00:00:00:0a", "dev", "pa0", "master", "static"], check=True)
        else:
            self.ip(self.host, "link del br0")


def live(options, pods, note):
    """Packets that gp0 receives, to a pod."""
    product = f"{options.bin}/steer.bpf.o"
    common = {"live": True, "netns": pods.host, "dev": "gp0", "pod_a": pods.a, "pod_b": pods.b,
              "target": "pb0", "packets": LIVE, "cpus": "0"}
    to_a = "02:00:00:00:00:0a,10.2.0.2"
    base = run(options, **common, to=to_a, program="discard")["cpu_ns_per_packet"]
    note("generator, dropped at once", "CPU", base)
    result = run(options, **common, to=to_a, object=product, fire=True, looks=f"{options.bin}/device.bpf.o")
    if result["b"] != LIVE or result["a"]:
        sys.exit(f"not all packets were steered to pod B: {result}")
    note("kernel: steered to pod B by peer redirect", "CPU", result["cpu_ns_per_packet"] - base)
    # There a packet that is dropped has not even got a buffer of its own.
    xdp = {"xdp": True, "to": to_a}
    least = run(options, **common, **xdp, program="discard_xdp")["cpu_ns_per_packet"]
    note("generator, dropped at XDP", "CPU", least)
    result = run(options, **common, **xdp, object=f"{options.bin}/xdp.bpf.o", fire=True,
                 looks=f"{options.bin}/device.bpf.o")
    if result["b"] != LIVE or result["a"]:
        sys.exit(f"not all packets were steered to pod B at XDP: {result}")
    note("kernel: steered to pod B at XDP", "CPU", result["cpu_ns_per_packet"] - base)
    pods.bridge(True)
    usual = run(options, **common, to=to_a, program="none")
    note("bridge alone to pod A", "CPU", usual["cpu_ns_per_packet"] - base)
    result = run(options, **common, to=to_a, object=product)
    note("kernel: judged, then the bridge to pod A", "CPU", result["cpu_ns_per_packet"] - base)
    pods.bridge(False)
    if result["b"] or result["a"] < LIVE * 0.99:
        sys.exit(f"not all packets came to pod A: {result}")
    forward = ["nsenter", f"--net=/run/netns/{pods.host}", f"{options.bin}/forward", "1", "10.2.0.2", "10.3.0.2"]
    with ready(forward) as (_, info):
        run(options, **{**common, "packets": 3 * LIVE}, to=f"{pods.mac},10.1.0.254", program="none")
        time.sleep(0.3)
    note_forwarder(note, "recvmmsg and sendmmsg", info["end"])
    forward = ["nsenter", f"--net=/run/netns/{pods.host}", f"{options.bin}/forward_xsk", "1",
               f"{options.bin}/feed.bpf.o", "gp0", "pa0", "02:00:00:00:00:0a", "pb0", "02:00:00:00:00:0b"]
    with ready(forward) as (_, info):
        out = {**common, "netns": pods.far, "dev": "eth0", "packets": 3 * LIVE, "target": None}
        result = run(options, **out, to=to_a, program="none", out=True)
        time.sleep(0.3)
    end = info["end"]
    # It may lose what it has no time for, and no more: what it sent has arrived.
    if abs(result["a"] - end["sent"]) > end["sent"] / 100 or end["to_b"]:
        sys.exit(f"not all packets came to pod A: {result} {end}")
    note_forwarder(note, "AF_XDP", end)


def note_forwarder(note, way, end):
    """What a forwarder in user space says of itself."""
    if end["received"] < 10_000:
        sys.exit(f"user space received too little by {way}: {end}")
    note(f"user space, {way}: its thread alone", "CPU", end["cpu_ns_per_packet"])
    note(f"user space, {way}: packets/s as it ran", "per s", end["packets_per_second"])


def report(samples):
    """A table for the program alone, one for packets on their way."""
    def cell(values):
        if not values:
            return ""
        s = spread(values)
        return f"{s['median']:,.0f} ({s['min']:,.0f} to {s['max']:,.0f})"

    columns = ["1 CPU", "2 CPUs, a channel each", "2 CPUs, one channel"]
    print("ns of CPU per packet over the empty program, by test run\n")
    names = list(dict.fromkeys(name for name, column in samples if column in columns))
    table(["program", *columns], [[n, *[cell(samples.get((n, c))) for c in columns]] for n in names])
    print("ns of CPU per packet over that of a packet that is dropped at once\n")
    rows = []
    for (name, column), values in samples.items():
        if column in ("CPU", "per s"):
            rate = f"{1e9 / spread(values)['median']:,.0f}" if column == "CPU" else ""
            rows.append([name, cell(values), rate])
    table(["way", "ns", "packets per CPU second"], rows)


def main():
    options = arguments(__doc__).parse_args()
    samples = {}

    def note(name, column, value):
        samples.setdefault((name, column), []).append(value)

    with Pods() as pods:
        for number in range(options.rounds):
            alone(options, note)
            live(options, pods, note)
            say(f"round {number + 1} of {options.rounds}")
    report(samples)
    finish(options, "steer", [{"name": n, "column": c, "values": v, **spread(v)} for (n, c), v in samples.items()])


main()
