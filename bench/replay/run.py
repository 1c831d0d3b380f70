#!/usr/bin/env python3
"""Packets per second and core from a capture file to flows: `skua replay` beside softflowd and tshark.

Three files, generated: many flows (small packets of 10,000 flows, in random order), 50 and one
big flow (full-size packets cut at 128 bytes). CPU time is user + system of the whole process. dd shows
what only reading the file takes, which is a part of each.
"""

import os
import random
import shutil
import struct
import subprocess
import tempfile
import time

from common import arguments, finish, say, spread, table


def write_pcap(path, packets, flows, size, snap):
    """UDP packets of `size` bytes, of which `snap` are in the file."""
    chosen = random.Random(1)
    ethernet = bytes.fromhex("020000000099" "020000000001" "0800")
    captured = min(size, snap)
    frames = []
    for flow in range(flows):
        source = (11 << 24 | flow).to_bytes(4, "big")
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, size - 14, 0, 0, 64, 17, 0, source, b"\x0a\x01\x00\x02")
        total = sum(struct.unpack("!10H", ip))
        total = (total & 0xFFFF) + (total >> 16)
        ip = ip[:10] + (~total & 0xFFFF).to_bytes(2, "big") + ip[12:]
        udp = struct.pack("!HHHH", 1024, 9000, size - 34, 0)
        frames.append((ethernet + ip + udp).ljust(captured, b"."))
    with open(path, "wb", buffering=1 << 20) as f:
        f.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, snap, 1))
        for number in range(packets):
            f.write(struct.pack("<IIII", 1_700_000_000 + number // 100_000, number % 100_000 * 10, captured, size))
            f.write(frames[number if number < flows else chosen.randrange(flows)])


def programs(options):
    """name -> command for a file, of those that are installed."""
    found = {"skua replay": [options.skua, "replay", "FILE"],
             "skua replay, JSON": [options.skua, "replay", "--output", "json", "FILE"],
             "softflowd": ["softflowd", "-r", "FILE", "-d", "-m", "1000000", "-n", "127.0.0.1:9"],
             "tshark": ["tshark", "-q", "-n", "-z", "conv,ip", "-r", "FILE"],
             "dd": ["dd", "if=FILE", "of=/dev/null", "bs=256k"]}
    for name, command in list(found.items()):
        if not shutil.which(command[0]):
            say(f"{name}: left out: {command[0]} is not there")
            del found[name]
    return found


def run(command, path):
    """CPU and wall seconds of one run; the output is thrown away."""
    begin = time.monotonic()
    process = subprocess.Popen(["taskset", "-c", "1", *[c.replace("FILE", path) for c in command]],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begin, usage.ru_maxrss


def main():
    parser = arguments(__doc__)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--file", help="measure this capture instead; --packets says how many it has")
    options = parser.parse_args()

    results, tested = [], programs(options)
    with tempfile.TemporaryDirectory(prefix="bn-replay-") as folder:
        files = {"10,000 flows": (10_000, 60), "50 big flows": (50, 1514), "one big flow": (1, 1514)}
        if options.file:
            files = {os.path.basename(options.file): None}
        for label, shape in files.items():
            path = options.file or os.path.join(folder, "bench.pcap")
            if shape:
                say(f"writing {options.packets:,} packets, {label}")
                write_pcap(path, options.packets, *shape, snap=128)
            samples = {name: [] for name in tested}
            for number in range(options.rounds):
                for name, command in list(tested.items()):
                    try:
                        samples[name].append(run(command, path))
                    except subprocess.CalledProcessError as reason:
                        say(f"{name}: left out: {reason}")
                        del tested[name], samples[name]
                say(f"{label}: round {number + 1} of {options.rounds}")
            rows = []
            best = max((options.packets / spread([c for c, _, _ in s])["median"]
                        for n, s in samples.items() if n in ("softflowd", "tshark")), default=None)
            for name, runs in samples.items():
                cpu = spread([c for c, _, _ in runs])
                rate = {k: options.packets / v for k, v in cpu.items()}
                rows.append([name, f"{rate['median']:,.0f}", f"{rate['max']:,.0f} to {rate['min']:,.0f}",
                             f"{rate['median'] / best:.2f}" if best else "", f"{max(m for _, _, m in runs) / 1024:.0f}"])
                results.append({"file": label, "program": name, "cpu_seconds": cpu, "packets_per_core_second": rate})
            print(f"**{label}**, {options.packets:,} packets\n")
            table(["program", "packets/s per core", "spread", "to the best other", "MiB at most"], rows)
    finish(options, "replay", results)


if __name__ == "__main__":
    main()
