#!/usr/bin/env python3
"""Cost of emptying the flow table: CPU of `skua run` with many live flows, per scan interval and per
record, its memory, and what it costs idle; beside draining a hash map key by key and in batches.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time

from common import (Failed, Namespace, arguments, cpu_seconds, finish, say, spread, status, stop, switches, table,
                    traffic, wait_until_watching)

PORT = 8082
INTERVAL = 10.0  # seconds, skua's default scan interval


def peers(options):
    """ns of CPU per entry of the ways others drain."""
    samples = {"key_by_key_ns": [], "batch_ns": []}
    for _ in range(options.rounds):
        output = subprocess.run(["taskset", "-c", "1", f"{options.bin}/keybykey", str(options.flows)], check=True,
                                timeout=300, text=True, stdout=subprocess.PIPE).stdout
        for name, values in samples.items():
            values.append(json.loads(output)[name])
    return samples


def skua(options, namespace):
    """`skua run` on bn-a, without history; its own log goes to standard error."""
    return subprocess.Popen(namespace.command([options.skua, "run", "--interface", "bn-a", "--max-entries",
                                               str(options.max_entries or options.flows * 11 // 5),
                                               *options.skua_args]),
                            stdout=subprocess.PIPE, text=True, env=os.environ | {"SKUA_HISTORY_MEMORY": "0", "SKUA_HISTORY_DIRECTORY": ""})


def counters(namespace):
    """What the agent itself counts. Asking makes it drain, so this is asked seldom."""
    page = namespace.run(["curl", "-sS", "--max-time", "30", f"http://127.0.0.1:{PORT}/metrics"])
    found = {}
    for name in ("skua_updates_total", "skua_drains_total", "skua_drain_cpu_seconds_total"):
        value = re.search(rf"^{name} ([0-9.e+-]+)$", page, re.M)
        if not value:
            raise Failed(f"/metrics has no {name}")
        found[name] = float(value[1])
    return found


class Load(threading.Thread):
    """Every flow gets a packet a few times per interval."""

    def __init__(self, options, namespace):
        super().__init__(daemon=True)
        self.options, self.namespace, self.ending = options, namespace, threading.Event()

    def run(self):
        while not self.ending.is_set():
            traffic(self.options, self.namespace, dev="bn-a", mode="inject", flows=self.options.flows,
                    packets=self.options.flows, walk=True, cpus="0")
            self.ending.wait(INTERVAL / 4)


def loaded(options, namespace):
    """CPU per drain and memory with all flows live, over several scan intervals."""
    agent = skua(options, namespace)
    load = Load(options, namespace)

    def sample():
        # The drain that the question causes is over when the CPU time is read, at either end.
        counted = counters(namespace)
        time.sleep(INTERVAL / 3)
        user, system = cpu_seconds(agent.pid)
        return counted | {"user": user, "system": system}

    try:
        wait_until_watching(agent)
        load.start()
        time.sleep(2 * INTERVAL)
        begin, resident = sample(), []
        for number in range(options.intervals):
            time.sleep(INTERVAL)
            resident.append(status(agent.pid, "VmRSS"))
            say(f"interval {number + 1} of {options.intervals}")
        end, peak = sample(), status(agent.pid, "VmHWM")
    finally:
        load.ending.set()
        stop(agent)
        if load.is_alive():
            load.join(60)
    return {"resident_kib": max(resident), "peak_kib": peak} | {name: end[name] - begin[name] for name in end}


def idle(options, namespace):
    """Memory and wake-ups with nothing to do."""
    agent = skua(options, namespace)
    try:
        wait_until_watching(agent)
        # The first drain is within an interval and a half; what it finds listening is written to the history.
        time.sleep(2 * INTERVAL)
        woken, cpu = switches(agent.pid), sum(cpu_seconds(agent.pid))
        time.sleep(2 * INTERVAL)
        return {"resident_kib": status(agent.pid, "VmRSS"),
                "wake_ups_per_interval": (switches(agent.pid) - woken) / 2,
                "cpu_seconds_per_interval": (sum(cpu_seconds(agent.pid)) - cpu) / 2}
    finally:
        stop(agent)


def main():
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--flows", type=int, default=500_000)
    parser.add_argument("--max-entries", type=int, help="room in the table; by default so much that it is less "
                        "than half full: above, flows are evicted early and come back")
    parser.add_argument("--intervals", type=int, default=6)
    parser.add_argument("skua_args", nargs="*", help="more arguments for skua run, after --")
    options = parser.parse_args()

    others = peers(options)
    key_by_key = spread(others["key_by_key_ns"])["median"]
    rows = [["next key + lookup + delete", f"{key_by_key:,.0f}", "1"],
            ["batch lookup and delete", f"{spread(others['batch_ns'])['median']:,.0f}",
             f"{key_by_key / spread(others['batch_ns'])['median']:.1f}"]]
    results = {"flows": options.flows, "peers": others}
    try:
        with Namespace("drain") as namespace:
            results["idle"] = idle(options, namespace)
            results["loaded"] = loaded(options, namespace)
    except (Failed, FileNotFoundError, subprocess.CalledProcessError) as reason:
        say(f"skua: left out: {reason}")

    if "loaded" in results:
        loads = results["loaded"]
        records = loads["skua_updates_total"]
        if not records:
            sys.exit("skua took no records")
        for name, seconds in (("skua: drain", loads["skua_drain_cpu_seconds_total"]),
                              ("skua: the whole agent", loads["user"] + loads["system"]),
                              ("  of that in user space", loads["user"])):
            ns = 1e9 * seconds / records
            rows.append([name, f"{ns:,.0f}", f"{key_by_key / ns:.1f}" if ns else ""])
    print(f"**CPU per entry**, {options.flows:,} flows\n")
    table(["way", "ns", "times faster"], rows)
    if "loaded" in results:
        per_drain = (loads["user"] + loads["system"]) / loads["skua_drains_total"]
        print("**skua run**, scan interval 10 s\n")
        table(["", f"{options.flows:,} live flows", "idle"], [
            ["CPU, cores (per drain / interval)", f"{per_drain / INTERVAL:.4f}",
             f"{results['idle']['cpu_seconds_per_interval'] / INTERVAL:.4f}"],
            ["resident memory, MiB", f"{loads['resident_kib'] / 1024:.1f}",
             f"{results['idle']['resident_kib'] / 1024:.1f}"],
            ["  peak, MiB", f"{loads['peak_kib'] / 1024:.1f}", ""],
            ["wake-ups per interval", "", f"{results['idle']['wake_ups_per_interval']:.1f}"],
        ])
    finish(options, "drain", results)


if __name__ == "__main__":
    main()
