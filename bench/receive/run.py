#!/usr/bin/env python3
"""Records per CPU second from datagrams to flows: the receivers beside nfcapd, sfcapd and goflow2.

Datagrams of 10,000 conversations come over loopback at a rate that nobody loses some of. CPU time is
user + system of the whole process, so with the receiving of UDP. nfcapd and sfcapd decode and write to
files; goflow2 decodes and writes JSON to /dev/null; Skua decodes and counts in its flow table.
"""

import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

from common import arguments, finish, say, spread, table

CONVERSATIONS = 10_000
SECONDS = 1_763_700_000


def conversation(number):
    """Addresses and ports."""
    return (10 << 24 | number, 10 << 24 | 1 << 20 | number % 400, 1_024 + number % 50_000,
            (443, 8080, 5432, 9092)[number % 4])


def sflow(sequence, chosen):
    """Six samples of 128 bytes."""
    samples = b""
    for _ in range(6):
        source, destination, port, service = conversation(chosen.randrange(CONVERSATIONS))
        ip = struct.pack("!BBHHHBBHII", 0x45, 0, 1_400, 0, 0x4000, 64, 6, 0, source, destination)
        tcp = struct.pack("!HHIIBBHHH", port, service, 1, 1, 0x50, 0x10, 501, 0, 0)
        header = (bytes.fromhex("0200000000010200000000020800") + ip + tcp).ljust(128, b".")
        record = struct.pack("!IIIIII", 1, 16 + len(header), 1, 1_418, 4, len(header)) + header
        body = struct.pack("!IIIIIIII", sequence, 3, 1_000, sequence * 1_000, 0, 3, 4, 1) + record
        samples += struct.pack("!II", 1, len(body)) + body
    return struct.pack("!IIIIIII", 5, 1, 0x7F000001, 0, sequence, sequence, 6) + samples


def netflow5(sequence, chosen):
    """Thirty records."""
    records = b""
    for _ in range(30):
        source, destination, port, service = conversation(chosen.randrange(CONVERSATIONS))
        records += struct.pack("!IIIHHIIIIHHBBBBHHBBH", source, destination, 0, 3, 4, 10, 9_000, 1_000, 2_000,
                               port, service, 0, 0x1B, 6, 0, 0, 0, 24, 24, 0)
    return struct.pack("!HHIIIIBBH", 5, 30, 10_000, SECONDS, 0, sequence * 30, 0, 0, 0) + records


FIELDS = [(8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (6, 1), (10, 4), (14, 4), (2, 8), (1, 8), (152, 8), (153, 8)]


def ipfix(sequence, chosen):
    """A template with each twentieth, and 24 records."""
    template = struct.pack("!HH", 256, len(FIELDS)) + b"".join(struct.pack("!HH", *field) for field in FIELDS)
    sets = struct.pack("!HH", 2, 4 + len(template)) + template if sequence % 20 == 0 else b""
    records = b""
    for _ in range(24):
        source, destination, port, service = conversation(chosen.randrange(CONVERSATIONS))
        records += struct.pack("!IIHHBBIIQQQQ", source, destination, port, service, 6, 0x1B, 3, 4, 10, 9_000,
                               SECONDS * 1_000 - 90, SECONDS * 1_000 - 10)
    sets += struct.pack("!HH", 256, 4 + len(records)) + records
    return struct.pack("!HHIII", 10, 16 + len(sets), SECONDS, sequence * 24, 7) + sets


PROTOCOLS = {"sFlow": (sflow, 6, "sflow"), "NetFlow 5": (netflow5, 30, "netflow"), "IPFIX": (ipfix, 24, "netflow")}


def send(datagrams, port, rate):
    """Sends at so many datagrams per second."""
    begin = time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        for number, datagram in enumerate(datagrams):
            sender.send(datagram)
            if number % 20 == 0:
                time.sleep(max(0, begin + number / rate - time.monotonic()))


def programs(options, kind, port, folder):
    """name -> (command, how many records its output says)."""
    def skua(text):
        return int(re.search(r"records: (\d+)", text).group(1))

    def nfdump(text):
        return sum(int(n) for n in re.findall(r"Flows: (\d+)", text))

    def lines(_):
        with open(f"{folder}/goflow2.out") as f:
            return sum(1 for _ in f)

    capd = "sfcapd" if kind == "sflow" else "nfcapd"
    goflow2 = ["goflow2", "-listen", f"{kind}://127.0.0.1:{port}", "-transport.file", f"{folder}/goflow2.out",
               "-addr", "127.0.0.1:0", "-format", "json"]
    found = {"skua": ([options.receive, kind, f"127.0.0.1:{port}", "-"], skua),
             capd: ([capd, "-b", "127.0.0.1", "-p", str(port), "-w", folder, "-B", "8000000"],
                    nfdump),
             "goflow2": (goflow2, lines)}
    for name, (command, _) in list(found.items()):
        if not shutil.which(command[0]):
            say(f"{name}: left out: {command[0]} is not there")
            del found[name]
    return found


def run(command, datagrams, port, rate):
    """CPU seconds of one run, and what the program printed."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        try:
            time.sleep(1)
            send(datagrams, port, rate)
            time.sleep(1)
        finally:
            # Ours ends with its standard input.
            process.stdin.close()
            if "examples/receive" not in command[0]:
                process.send_signal(signal.SIGINT)
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
        output.seek(0)
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss, output.read()


def main():
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--receive", default="../target/shipped/examples/receive", help="the receiver of skua-probe")
    parser.add_argument("--datagrams", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=20_000, help="datagrams per second")
    parser.add_argument("--port", type=int, default=29_990)
    options = parser.parse_args()

    results = []
    for label, (make, each, kind) in PROTOCOLS.items():
        chosen = random.Random(1)
        datagrams = [make(number, chosen) for number in range(options.datagrams)]
        sent, samples = options.datagrams * each, {}
        with tempfile.TemporaryDirectory(prefix="bn-receive-") as folder:
            for number in range(options.rounds):
                for name, (command, count) in programs(options, kind, options.port, folder).items():
                    cpu, memory, text = run(command, datagrams, options.port, options.rate)
                    try:
                        records = count(text)
                    except (AttributeError, OSError):
                        say(f"{name}: left out: it did not say what it counted: {text[-300:]}")
                        continue
                    samples.setdefault(name, []).append((records / cpu, records, memory))
                    for file in os.listdir(folder):
                        os.unlink(f"{folder}/{file}")
                say(f"{label}: round {number + 1} of {options.rounds}")
        rows = []
        for name, runs in samples.items():
            rate = spread([r for r, _, _ in runs])
            lost = 1 - sum(n for _, n, _ in runs) / (sent * len(runs))
            rows.append([name, f"{rate['median']:,.0f}", f"{rate['min']:,.0f} to {rate['max']:,.0f}", f"{lost:.1%}",
                         f"{max(m for _, _, m in runs) / 1024:.0f}"])
            results.append({"protocol": label, "program": name, "records_per_cpu_second": rate, "lost": lost})
        print(f"**{label}**, {sent:,} records in {options.datagrams:,} datagrams\n")
        table(["program", "records per CPU second", "spread", "lost", "MiB at most"], rows)
    finish(options, "receive", results)


if __name__ == "__main__":
    main()
