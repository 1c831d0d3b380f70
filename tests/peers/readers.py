"""Other readers of sFlow: what each of them shows of datagrams, compared with what is in them.

Each takes what was told and a folder, and gives its version and what was compared; it ends all when that differs, or
when the reader complains.
"""

import ipaddress
import json
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import time

import sflow

PATIENCE = 90


def fail(text):
    sys.exit(f"peers: {text}")


def wait(what, look):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    fail(f"no {what} in {PATIENCE} s")


def ran(*command):
    """What a program wrote, and what it said beside that; it must have ended well."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        fail(f"{command[0]}: {done.returncode}: {done.stderr}")
    return done.stdout, done.stderr


def same(who, shown, wanted):
    shown, wanted = sorted(shown), sorted(wanted)
    if shown != wanted:
        others = [one for one in shown if one not in wanted][:3], [one for one in wanted if one not in shown][:3]
        fail(f"{who} shows {len(shown)} of {len(wanted)}; it alone {others[0]}, not {others[1]}")


def pcap(told, work):
    """Datagrams as packets of Ethernet in a file."""
    out = struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65_535, 1)
    for datagram in told.datagrams:
        udp = struct.pack(">HHHH", 40_000, 6_343, 8 + len(datagram), 0) + datagram
        ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, 0x0a000001, 0x0a000002)
        frame = bytes(12) + b"\x08\x00" + ip + udp
        out += struct.pack("<IIII", 1, 0, len(frame), len(frame)) + frame
    path = work / "told.pcap"
    path.write_bytes(out)
    return path


class Receiver:
    """A reader that listens: told the datagrams, then asked to end."""

    def __init__(self, work, port, *command):
        self.port, self.log = port, work / "receiver.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)

    def queued(self):
        """Bytes in the queue of the socket; None: there is no socket."""
        for line in pathlib.Path("/proc/self/net/udp").read_text().splitlines()[1:]:
            words = line.split()
            if int(words[1].split(":")[1], 16) == self.port:
                return int(words[4].split(":")[1], 16)
        return None

    def tell(self, datagrams):
        wait(f"socket: {self.log.read_text()}", lambda: self.queued() is not None)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for datagram in datagrams:
                sender.sendto(datagram, ("127.0.0.1", self.port))
                wait("room", lambda: self.queued() == 0)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        return self.log.read_text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def tshark(told, work):
    version = re.search(r"TShark \(Wireshark\) (\S+?)\.? ", ran("tshark", "--version")[0])[1]
    read = ["tshark", "-r", pcap(told, work)]
    if complaint := ran(*read, "-Y", "_ws.malformed or _ws.expert")[0]:
        fail(f"tshark complains: {complaint}")
    shown = []
    for part in re.split(r"\n    (?:Expanded f|F)low sample, ", ran(*read, "-V")[0])[1:]:
        def value(name):
            return re.search(rf"\n +{name}: (.*)", part)[1]

        ports = int(value("Source Port")), int(value("Destination Port"))
        protocol = int(re.search(r"\((\d+)\)", value("IP Protocol"))[1])
        rate = int(re.search(r"out of (\d+)", value("Sampling rate"))[1])
        length = int(value("Length of IP Packet"))
        interfaces = int(value(r"Input interface \(ifIndex\)")), int(re.search(r"Output interface value: (\d+)", part)[1])
        shown.append((value("Source IP address"), value("Destination IP address"), *ports, protocol, rate, length, *interfaces))
    same("tshark", shown, [sample.shown() for sample in told.samples])
    return version, "addresses, ports, protocol, rate, length, interfaces"


def objects(text):
    """JSON, one object behind the other."""
    at, decoder = 0, json.JSONDecoder()
    while text[at:at + 1] and (rest := text[at:].lstrip()):
        at = len(text) - len(rest)
        found, at = decoder.raw_decode(text, at)
        yield found


def sflowtool(told, work):
    version = re.search(r"version: (\S+)", "".join(ran("sflowtool", "-h")))[1]
    out, err = ran("sflowtool", "-r", pcap(told, work), "-J")
    if complaint := [line for line in err.splitlines() if not line.startswith("pcap version=")]:
        fail(f"sflowtool complains: {complaint[:3]}")
    shown, interfaces, infos, times = [], [], [], []
    for datagram in objects(out):
        for sample in datagram["samples"]:
            if sample["sampleType"] == "FLOWSAMPLE":
                one = {name: value for part in sample["elements"] for name, value in part.items()}
                protocol = "TCP" if "TCPSrcPort" in one else "UDP"
                ports = int(one[f"{protocol}SrcPort"]), int(one[f"{protocol}DstPort"])
                addresses = (one.get(f"{end}IP") or str(ipaddress.ip_address(one[f"{end}IP6"])) for end in ["src", "dst"])
                numbers = int(one["IPProtocol"]), int(sample["meanSkipCount"]), int(one["IPSize"])
                shown.append((*addresses, *ports, *numbers))
                interfaces.append((int(one["inputPort"]), int(one["outputPort"])))
                if "timestamp_nS" in one:
                    times.append(int(one["timestamp_nS"]))
                # The direction is a word.
                if measured := [value for name, value in one.items() if name.startswith("tcpinfo_")]:
                    infos.append(tuple(int(value) for value in measured[1:]))
    shown = [(*one, *ports) for one, ports in zip(shown, interfaces)]
    same("sflowtool", shown, [sample.shown() for sample in told.samples])
    same("sflowtool, of 0:2209,", infos, [sample.tcp[1:] for sample in told.samples if sample.tcp])
    same("sflowtool, of 0:1043,", times, [sample.time for sample in told.samples if sample.time])
    return version, "addresses, ports, protocol, rate, length, interfaces, all of 0:2209 and 0:1043"


def goflow2(told, work):
    binary = subprocess.check_output(["sh", "-c", "command -v goflow2"], text=True).strip()
    # It does not know its own version where Go has built it.
    built = subprocess.run(["go", "version", "-m", binary], capture_output=True, text=True).stdout
    version = re.search(r"\tmod\t\S+\t(\S+)", built)
    file = work / "goflow2.json"
    command = ["-listen", "sflow://127.0.0.1:16343", "-addr", "127.0.0.1:0", "-transport.file", file]
    with Receiver(work, 16_343, "goflow2", *command) as receiver:
        receiver.tell(told.datagrams)
        wait("sample of each", lambda: len(file.read_text().splitlines()) >= len(told.samples))
        log = receiver.end()
    if complaint := [line for line in log.splitlines() if "level=INFO" not in line]:
        fail(f"goflow2 complains: {complaint[:3]}")
    protocols = {"TCP": 6, "UDP": 17}
    names = ["src_addr", "dst_addr", "src_port", "dst_port", "proto", "sampling_rate", "bytes", "in_if", "out_if"]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    shown = [tuple(protocols.get(line[name], line[name]) for name in names) for line in lines]
    same("goflow2", shown, [sample.shown() for sample in told.samples])
    return version[1] if version else "of unknown version", "addresses, ports, protocol, rate, length, interfaces"


def sfcapd(told, work):
    version = re.search(r"(\d[\d.]+)", "".join(ran("sfcapd", "-V")))[1]
    folder = work / "nfdump"
    folder.mkdir()
    with Receiver(work, 16_344, "sfcapd", "-b", "127.0.0.1", "-p", 16_344, "-w", folder) as receiver:
        receiver.tell(told.datagrams)
        log = receiver.end()
    if "Sequence Errors: 0, Bad Packets: 0" not in log:
        fail(f"sfcapd complains: {log}")
    out = ran("nfdump", "-R", folder, "-q", "-N", "-o", "fmt:%sp|%dp|%pkt|%byt|%in|%out")[0]
    shown = [tuple(int(word) for word in line.split("|")) for line in out.splitlines() if line.strip()]
    wanted = [(*sample.ports, sample.rate, sample.rate * sample.length, *sample.interfaces) for sample in told.samples]
    same("sfcapd", shown, wanted)
    return version, "ports, packets, bytes, interfaces"


ALL = [tshark, sflowtool, goflow2, sfcapd]


class Told:
    """Datagrams and what is in them."""

    def __init__(self, datagrams):
        self.datagrams = datagrams
        self.samples = [sample for datagram in datagrams for sample in sflow.read(datagram)]
