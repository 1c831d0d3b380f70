#!/usr/bin/env python3
"""What a collector's records cost, receiving included.

Standard samples (a raw header each) of 2,000 and 300,000 keys over loopback, the same datagrams to each: `decode`
is what we receive and decode with, and nothing more; skua sums up by service and client and throws its lines away;
sfcapd decodes and writes to a file, sfacctd sums up by addresses, port and protocol in memory, goflow2 decodes and
writes JSON. CPU time is user + system of the whole process.
"""

import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

from common import arguments, finish, say, spread, table

RECEIVE = importlib.util.spec_from_file_location("receive", "receive/run.py")
receive = importlib.util.module_from_spec(RECEIVE)
RECEIVE.loader.exec_module(receive)


def datagrams(keys, count):
    """Samples of so many pairs of addresses and port."""
    receive.CONVERSATIONS = keys
    chosen = random.Random(1)
    return [receive.sflow(number, chosen) for number in range(count)]


def programs(options, port, folder):
    """name -> (command, how many records it says)."""
    def skua(text):
        return json.loads(text.strip().splitlines()[-1])["samples"]

    def nfdump(text):
        return sum(int(n) for n in re.findall(r"Flows: (\d+)", text))

    def lines(_):
        with open(f"{folder}/goflow2.out") as f:
            return sum(1 for _ in f)

    def flows(_):
        # What is in memory at the end is written by its print plugin.
        with open(f"{folder}/sfacctd.out") as f:
            return sum(int(line.split(",")[-2]) for line in f if line[:1].isdigit() and line.count(",") >= 5)

    config = f"{folder}/sfacctd.conf"
    with open(config, "w") as f:
        f.write(f"""daemonize: false
sfacctd_ip: 127.0.0.1
sfacctd_port: {port}
plugins: print[p]
aggregate[p]: proto, src_host, dst_host, dst_port
print_output: csv
print_output_file[p]: {folder}/sfacctd.out
print_refresh_time: 3600
print_cache_entries: 400009
plugin_buffer_size: 1024000
plugin_pipe_size: 102400000
sfacctd_pipe_size: 32000000
""")
    def last(text):
        return int(text.split()[-1])

    each = {
        "decode": ([options.decode, f"127.0.0.1:{port}"], last),
        "skua collector": ([options.skua, "collector", "--listen", f"127.0.0.1:{port}", "--sink", "none", "--summary", "json",
                            "--sender-rate", "10000000"], skua),
        "sfcapd": (["sfcapd", "-b", "127.0.0.1", "-p", str(port), "-w", folder, "-B", "8000000"], nfdump),
        "sfacctd": (["sfacctd", "-f", config], flows),
        "goflow2": (["goflow2", "-listen", f"sflow://127.0.0.1:{port}", "-transport.file", f"{folder}/goflow2.out",
                     "-addr", "127.0.0.1:0", "-format", "json"], lines),
    }
    for name, (command, _) in list(each.items()):
        if not shutil.which(command[0]):
            say(f"{name}: left out: {command[0]} is not there")
            del each[name]
    return each


def children_cpu(pid):
    """CPU seconds of a process and those that it started, and their most resident memory, KiB."""
    cpu, memory, todo = 0, 0, [pid]
    while todo:
        one = todo.pop()
        try:
            with open(f"/proc/{one}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            with open(f"/proc/{one}/status") as f:
                memory += int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1))
            with open(f"/proc/{one}/task/{one}/children") as f:
                todo += [int(n) for n in f.read().split()]
        except (OSError, AttributeError):
            continue
        cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return cpu, memory


def measured(command, feed):
    """CPU seconds, KiB, what was printed, and what `feed` returned."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            time.sleep(2)
            before, _ = children_cpu(process.pid)
            fed = feed()
            time.sleep(2)
            cpu, memory = children_cpu(process.pid)
        finally:
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as f:
                children = f.read().split()
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
                # What is summed up is written by the last of them.
                end = time.monotonic() + 30
                while any(os.path.exists(f"/proc/{child}") for child in children) and time.monotonic() < end:
                    time.sleep(0.1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        output.seek(0)
        return cpu - before, memory, output.read(), fed


def standard(options, results):
    """Standard samples, to each program."""
    for keys in (2_000, 300_000):
        all_of_them, samples = datagrams(keys, options.datagrams), {}
        for number in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="bn-collector-") as folder:
                for name, (command, count) in programs(options, options.port, folder).items():
                    cpu, memory, text, _ = measured(
                        command, lambda: receive.send(all_of_them, options.port, options.rate))
                    try:
                        records = count(text)
                    except (AttributeError, OSError, ValueError, IndexError, KeyError) as error:
                        say(f"{name}: what it counted is not known ({error!r}): {text[-200:]}")
                        records = None
                    samples.setdefault(name, []).append((records, cpu, memory))
            say(f"{keys} keys: round {number + 1} of {options.rounds}")
        sent, rows = options.datagrams * 6, []
        for name, runs in samples.items():
            known = [records for records, _, _ in runs if records is not None]
            rate = spread([(records if records is not None else sent) / cpu for records, cpu, _ in runs if cpu])
            lost = f"{1 - sum(known) / (sent * len(known)):.1%}" if known else "not known"
            rows.append([name, f"{rate['median']:,.0f}", f"{rate['min']:,.0f} to {rate['max']:,.0f}", lost,
                         f"{max(m for _, _, m in runs) / 1024:.0f}"])
            results.append({"keys": keys, "program": name, "records_per_cpu_second": rate, "lost": lost})
        print(f"**Standard samples, {keys:,} keys**: {sent:,} in {options.datagrams:,} datagrams\n")
        table(["program", "records per CPU second", "spread", "lost", "MiB at most"], rows)


def main():
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--decode", default="../target/shipped/examples/decode", help="the decoder of skua-probe")
    parser.add_argument("--datagrams", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=20_000, help="datagrams per second")
    parser.add_argument("--port", type=int, default=29_991)
    options = parser.parse_args()
    results = []
    standard(options, results)
    finish(options, "collector", results)


if __name__ == "__main__":
    main()
