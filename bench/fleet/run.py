#!/usr/bin/env python3
"""A thousand agents on this machine against one collector: what a record costs both, and what is lost where.

The agents are one process (an example of skua-collect) in which each has an address, a sequence and conversations of
its own, each conversation told by both of its sides; it is paced, and tells all of them in turn. The collector is
`skua collector`. First rates that are asked for, then 80% of the most of these that came without loss.
CPU time is user + system of each process.
"""

import json
import os
import re
import resource
import subprocess
import tempfile
import time

from common import arguments, finish, stop, table


def cpu_and_memory(pid):
    """CPU seconds of a process, and its most resident memory, MiB."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{pid}/status") as f:
        memory = int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), memory / 1024


def one(options, rate):
    """One run at so many records a second; what is known of it."""
    command = [options.skua, "collector", "--listen", f"127.0.0.1:{options.port}", "--sink", "none", "--summary", "json",
               "--allow", "127.0.0.0/8", "--threads", str(options.threads)]
    feed = [options.agents, f"127.0.0.1:{options.port}", str(options.count), str(options.conversations),
            str(options.seconds), str(int(rate))]
    with tempfile.TemporaryFile("w+") as output:
        collector = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output)
        try:
            time.sleep(1)
            before, load = resource.getrusage(resource.RUSAGE_CHILDREN), os.getloadavg()[0]
            sent = json.loads(subprocess.run(feed, check=True, capture_output=True, text=True).stdout)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            time.sleep(2)
            cpu, memory = cpu_and_memory(collector.pid)
        finally:
            stop(collector, 60)
        output.seek(0)
        summary = json.loads(output.read().strip().splitlines()[-1])
    agents_cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "rate": rate, "load": load, "sent": sent, "records": summary["records"], "lost": summary["lost"],
        "missing_packets": summary["missing"]["packets"], "exported_packets": summary["exported"]["packets"],
        "agents": len(summary["agents"]), "conversations": summary["conversations"], "lines": summary["lines"],
        "collector_us": cpu * 1e6 / max(summary["records"], 1), "collector_cores": cpu / sent["seconds"],
        # With what it took to make the records up.
        "agent_us": agents_cpu * 1e6 / max(sent["records"], 1), "memory_mib": memory,
        "bytes_a_record": summary["datagram_bytes"] / max(summary["records"], 1),
    }


def row(found):
    """The table's."""
    sent = found["sent"]
    share = 1 - found["records"] / max(sent["records"], 1)
    lost = ", ".join(f"{cause} {units:,}" for cause, units in sorted(found["lost"].items())) or "nothing"
    return [f"{found['rate']:,.0f}", f"{sent['records'] / sent['seconds']:,.0f}", f"{share:.2%}", lost,
            f"{found['agent_us']:.2f}", f"{found['collector_us']:.2f}", f"{found['collector_cores']:.2f}",
            f"{found['bytes_a_record']:.0f}", f"{found['memory_mib']:.0f}", f"{found['load']:.1f}"]


def main():
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--agents", default="../target/shipped/examples/agents", help="the agents of skua-collect")
    parser.add_argument("--count", type=int, default=1_000, help="agents")
    parser.add_argument("--conversations", type=int, default=50, help="of each as client, and about as many as server")
    parser.add_argument("--rates", default="50000,100000,200000,400000,800000", help="records a second of all agents")
    parser.add_argument("--seconds", type=int, default=20, help="how long they send")
    parser.add_argument("--threads", type=int, default=1, help="of the collector")
    parser.add_argument("--port", type=int, default=29_992)
    options = parser.parse_args()
    found = [one(options, int(rate)) for rate in options.rates.split(",") for _ in range(options.rounds)]
    whole = [run["sent"]["records"] / run["sent"]["seconds"] for run in found if run["records"] == run["sent"]["records"]]
    if whole:
        found.append(one(options, 0.8 * max(whole)))
    print(f"**{options.count:,} agents with {options.conversations} conversations each, told by both sides; a collector with "
          f"--threads {options.threads}**\n")
    table(["rate asked for", "records/s sent", "lost", "by cause", "agents: µs a record", "collector: µs a record",
           "collector: cores", "bytes a record", "MiB at most", "load before"], [row(run) for run in found])
    finish(options, "fleet", found)


if __name__ == "__main__":
    main()
