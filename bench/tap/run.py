#!/usr/bin/env python3
"""Copying packets to a monitor: ns of CPU per packet, and packets per second without loss.

`source` is a port of a bridge; what it receives goes on to `receiver`, and copies to `mon0`. Behind both
are namespaces that count; the frames are for another station, so that nobody there looks further. Beside the tap: `tc … mirred`, and a port mirror of Open vSwitch's userspace
datapath, which then is the bridge. CPU of a kernel path is that of the thread that injects the frames, which
softirq work is charged to; CPU of Open vSwitch is that of its process. Cases are measured in turn within each
round; a cell is the median (minimum to maximum) of the rounds.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from common import arguments, cpu_seconds, finish, say, spread, table, traffic

SIZES = [64, 128, 256, 512, 1024, 1280, 1518]
FCS = 4
PACKETS = 300_000
# Rates that are tried for loss, packets per second.
RATES = [10_000, 20_000, 35_000, 50_000, 75_000, 100_000, 150_000, 200_000, 300_000, 400_000, 600_000, 800_000]
RATE_SECONDS = 1.5
NONE = "udp and dst port 9"  # matches no frame of the generator
TC_NONE = ["u32", "match", "ip", "dst", "192.0.2.1/32"]
HOSTS = ",".join(f"192.0.{n >> 8}.{n & 255}" for n in range(5000))
WIRE = ["tso", "off", "gso", "off", "tx", "off"]
SOCKET = "/run/skua/bench-tap.sock"
API = f"unix:{SOCKET}"


class Lab:
    """bn-tap…: `gen` — `source` (bridge) `receiver` — `end`; `mon0` — `end`. Gone at the end."""

    def __init__(self, bridge=True):
        pid = os.getpid()
        self.name, self.rx, self.mon = f"bn-tap-{pid}", f"bn-tapr-{pid}", f"bn-tapm-{pid}"
        self.bridge = bridge

    def __enter__(self):
        if os.geteuid() != 0:
            sys.exit("the benchmarks need root: network namespaces and BPF programs")
        try:
            for name in (self.name, self.rx, self.mon):
                subprocess.run(["ip", "netns", "add", name], check=True)
                subprocess.run(["nsenter", f"--net=/run/netns/{name}", "sysctl", "-qw",
                                "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"], check=True)
            self.run("ip link set lo up")
            self.run("ip link add source type veth peer name gen")
            for port, room in (("receiver", self.rx), ("mon0", self.mon)):
                self.run(f"ip link add {port} type veth peer name end netns {room}")
                self.within(room, "ip link set end up")
            for link in ("source", "gen", "receiver", "mon0"):
                self.run(f"ip link set {link} up")
            self.run("ethtool -K source gro on")
            if self.bridge:
                self.run("ip link add br0 type bridge mcast_snooping 0")
                self.run("ip link set br0 up")
                for port in ("source", "receiver"):
                    self.run(f"ip link set {port} master br0")
                self.run("bridge fdb add 02:00:00:00:00:99 dev receiver master static")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in (self.name, self.rx, self.mon):
            subprocess.run(["ip", "netns", "del", name], check=False)

    def within(self, room, command):
        words = command.split() if isinstance(command, str) else command
        return subprocess.run(["nsenter", f"--net=/run/netns/{room}", *words], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=60).stdout

    def run(self, command):
        return self.within(self.name, command)

    def arrived(self):
        """Packets that came to the receiver and to the monitor, once no more come."""
        def now():
            return [json.loads(self.within(room, "ip -j -s link show dev end"))[0]["stats64"]["rx"]["packets"]
                    for room in (self.rx, self.mon)]
        before = now()
        while True:
            time.sleep(0.1)
            after = now()
            if after == before:
                return after
            before = after

    def measured(self, options, **settings):
        """Runs the generator: its JSON, and what came to the receiver and to the monitor."""
        before = self.arrived()
        sent = traffic(options, self, **settings)
        after = self.arrived()
        return sent, after[0] - before[0], after[1] - before[1]


@contextlib.contextmanager
def nothing(_lab, _options):
    yield


@contextlib.contextmanager
def wire(lab):
    """The monitor has packets cut and completed before it gets them, so that the tap comes straight."""
    lab.run(["ethtool", "-K", "mon0", *WIRE])
    try:
        yield
    finally:
        lab.run(["ethtool", "-K", "mon0", *[{"off": "on"}.get(word, word) for word in WIRE]])


def tap(*more, straight=True):
    """A tap of `skua run`, which watches nothing here but loopback."""
    @contextlib.contextmanager
    def started(lab, options):
        with wire(lab) if straight else contextlib.nullcontext():
            skua = ["nsenter", f"--net=/run/netns/{lab.name}", options.skua]
            # A tap that was kept would be there in the next round.
            run = subprocess.Popen([*skua, "run", "--interface", "lo", "--listen", "127.0.0.1:18099",
                                    "--socket", SOCKET], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True,
                                   env={**os.environ, "SKUA_HISTORY_DIRECTORY": "", "SKUA_CONFIG": "/dev/null"})
            try:
                run.stdout.readline()
                made = subprocess.run([*skua, "tap", "create", "--analyzer", API, "--from", "source",
                                       "--direction", "in", *(() if "--to" in more else ("--to", "mon0")), *more],
                                      check=True, text=True, stdout=subprocess.PIPE).stdout
                view = json.loads(made)
                assert view["State"] == "active", view
                assert view["Monitors"][0]["Direct"] == straight, view["Monitors"]
                yield
            finally:
                run.terminate()
                run.wait()
                run.stdout.close()
    return started


def mirred(*match):
    """tc's mirror behind a classifier."""
    @contextlib.contextmanager
    def started(lab, _options):
        words = match or ("u32", "match", "u32", "0", "0")
        lab.run("tc qdisc add dev source clsact")
        try:
            lab.run(["tc", "filter", "add", "dev", "source", "ingress", "protocol", "ip", *words,
                     "action", "mirred", "egress", "mirror", "dev", "mon0"])
            yield
        finally:
            lab.run("tc qdisc del dev source clsact")
    return started


CASES = {
    "bridge alone": (nothing, 0),
    "tap, matches none (expression)": (tap("--match", NONE), 0),
    "tap, matches none (5,000 addresses)": (tap("--net", HOSTS), 0),
    "tap, matches none (process)": (tap("--process", "nobody-is-called-so"), 0),
    "mirred behind u32, matches none": (mirred(*TC_NONE), 0),
    "tap, matches 1%": (tap("--match", "udp and src host 11.0.0.7"), None),
    "mirred behind u32, matches 1%": (mirred("u32", "match", "ip", "src", "11.0.0.7/32"), None),
    "tap, matches all": (tap(), 1),
    "tap, matches all, VLAN tag": (tap("--vlan", "100"), 1),
    "tap, matches all, as on a wire": (tap(straight=False), 1),
    "tap, matches all, cut to 128": (tap("--cut", "128", straight=False), 1),
    "mirred, matches all": (mirred(), 1),
}


@contextlib.contextmanager
def open_vswitch(lab, datapath="netdev", mirror=True):
    """Open vSwitch with a mirror of `source`; yields the switch's process number.

    The datapath is `netdev`, in user space, or `system`, the kernel's.
    """
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "OVS_RUNDIR": folder, "OVS_DBDIR": folder, "OVS_LOGDIR": folder, "OVS_SYSCONFDIR": folder}
        schema = "/usr/share/openvswitch/vswitch.ovsschema"
        subprocess.run(["ovsdb-tool", "create", f"{folder}/conf.db", schema], check=True)
        socket = f"unix:{folder}/db.sock"
        enter = ["nsenter", f"--net=/run/netns/{lab.name}"]
        database = subprocess.Popen([*enter, "ovsdb-server", f"--remote=p{socket}", f"{folder}/conf.db",
                                     f"--unixctl={folder}/db.ctl", "-vconsole:off"], env=env)
        switch = None
        try:
            def vsctl(*words):
                subprocess.run([*enter, "ovs-vsctl", f"--db={socket}", *words], check=True, env=env, timeout=30,
                               stdout=subprocess.DEVNULL)
            for _ in range(100):
                if os.path.exists(f"{folder}/db.sock"):
                    break
                time.sleep(0.05)
            vsctl("--no-wait", "init")
            less = ["--disable-system"] if datapath == "netdev" else []
            switch = subprocess.Popen([*enter, "ovs-vswitchd", socket, *less, "-vconsole:off",
                                       f"--unixctl={folder}/switch.ctl"], env=env, stderr=subprocess.DEVNULL)
            vsctl("add-br", "br0", "--", "set", "bridge", "br0", f"datapath_type={datapath}")
            for port in ("source", "receiver", "mon0"):
                vsctl("add-port", "br0", port)
            subprocess.run([*enter, "ovs-ofctl", "add-flow", f"unix:{folder}/br0.mgmt",
                            "in_port=source,actions=output:receiver"], check=False, env=env, stderr=subprocess.DEVNULL)
            if mirror:
                vsctl("--", "--id=@s", "get", "port", "source", "--", "--id=@o", "get", "port", "mon0",
                      "--", "--id=@m", "create", "mirror", "name=m", "select-src-port=@s", "output-port=@o",
                      "--", "set", "bridge", "br0", "mirrors=@m")
            time.sleep(1)
            yield switch.pid
        finally:
            for process in (switch, database):
                if process:
                    process.terminate()
                    process.wait()


def cpu_table(options, results):
    """ns per packet by size."""
    samples = {}
    cases = {name: case for name, case in CASES.items() if not options.case or any(c in name for c in options.case)}
    for number in range(options.rounds):
        with Lab() as lab:
            for name, (case, share) in cases.items():
                with case(lab, options):
                    for size in options.sizes:
                        sent, received, copied = lab.measured(options, dev="source", mode="inject", flows=100,
                                                              packets=PACKETS, size=size - FCS, cpus="0")
                        lost = PACKETS - received
                        if share is not None and abs(copied - share * (PACKETS - lost)) > 0.001 * PACKETS + lost:
                            say(f"{name}, {size}: {copied} copies, {received} of {PACKETS} received")
                        samples.setdefault((name, size), []).append((sent["cpu_ns_per_packet"], lost, copied))
        say(f"CPU, round {number + 1} of {options.rounds}")
    rows = []
    for name in cases:
        cells = [spread([s[0] for s in samples[name, size]]) for size in options.sizes]
        lost = sum(s[1] for size in options.sizes for s in samples[name, size])
        total = PACKETS * len(options.sizes) * options.rounds
        rows.append([name, *[f"{c['median']:.0f} ({c['min']:.0f}–{c['max']:.0f})" for c in cells],
                     f"{100 * lost / total:.2f}%"])
    print("ns of CPU per packet, by frame size with FCS; loss at the receiver\n")
    table(["", *options.sizes, "lost"], rows)
    results += [{"case": n, "size": s, "samples": v} for (n, s), v in samples.items()]


def lossless(options, lab, size, pid=None):
    """The highest rate at which all originals and all copies arrive; CPU µs of a process per packet there."""
    best, cpu = 0, None
    for rate in RATES:
        packets = int(rate * RATE_SECONDS)
        before = sum(cpu_seconds(pid)) if pid else 0
        sent, received, copied = lab.measured(options, dev="gen", mode="socket", flows=100, packets=packets,
                                              size=size - FCS, rate=rate, cpus="0")
        used = sum(cpu_seconds(pid)) - before if pid else 0
        actual = packets / sent["seconds"]
        if received < packets or copied < packets:
            break
        best, cpu = max(best, actual), used * 1e6 / packets
        if actual < 0.9 * rate:
            break
    return best, cpu


def rate_table(options, results):
    """Packets per second without loss."""
    cases = {"tap, matches all": tap(), "tap, matches all, as on a wire": tap(straight=False),
             "mirred, matches all": mirred()}
    samples = {}
    for number in range(options.rounds):
        with Lab() as lab:
            for name, case in cases.items():
                with case(lab, options):
                    for size in options.sizes:
                        samples.setdefault((name, size), []).append(lossless(options, lab, size))
        if shutil.which("ovs-vswitchd") and not options.no_ovs:
            with Lab(bridge=False) as lab, open_vswitch(lab) as pid:
                for size in options.sizes:
                    # The mirror may miss what comes before its flow is there.
                    lab.measured(options, dev="gen", mode="socket", flows=100, packets=5_000, size=size - FCS,
                                 rate=5_000, cpus="0")
                    samples.setdefault(("Open vSwitch, userspace, mirror", size), []).append(
                        lossless(options, lab, size, pid))
        say(f"rates, round {number + 1} of {options.rounds}")
    rows = []
    for name in dict.fromkeys(name for name, _ in samples):
        cells = []
        for size in options.sizes:
            found = spread([s[0] for s in samples[name, size]])
            cpu = [s[1] for s in samples[name, size] if s[1]]
            more = f", {sorted(cpu)[len(cpu) // 2]:.1f} µs" if cpu else ""
            cells.append(f"{found['median'] / 1000:.0f}{more}")
        rows.append([name, *cells])
    print("Thousands of packets per second of which none was lost, at the receiver or the monitor; CPU of the switch's "
          "process per packet\n")
    table(["", *options.sizes], rows)
    results += [{"rates": n, "size": s, "samples": v} for (n, s), v in samples.items()]


def main():
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES", help="frames with FCS")
    parser.add_argument("--only", choices=["cpu", "rates"])
    parser.add_argument("--case", nargs="+", metavar="TEXT", help="only cases whose name has one of these, for CPU")
    parser.add_argument("--no-ovs", action="store_true")
    options = parser.parse_args()
    results = []
    if options.only != "rates":
        cpu_table(options, results)
    if options.only != "cpu":
        rate_table(options, results)
    finish(options, "tap", results)


if __name__ == "__main__":
    sys.exit(main())
