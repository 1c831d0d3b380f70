#!/usr/bin/env python3
"""How long captures take to begin: from `POST /api/capture` until each is active, and what it costs `skua run`.

usage: bench/captures/run.py [--captures N] [--bpf EXPRESSION] SKUA

Captures of one interface each, one after another, of a network namespace made for it. Needs root.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import tempfile
import time

PATIENCE = 60


class Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def ask(path, method, where, body=None):
    connection = Connection(path)
    text = json.dumps(body) if body else None
    connection.request(method, where, text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status not in (200, 201):
        raise SystemExit(f"{method} {where}: {answer.status} {text.decode()}")
    return json.loads(text)


def wait(what, done):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            found = done()
            if found:
                return found
        except OSError:
            pass
        time.sleep(0.005)
    raise SystemExit(f"never: {what}")


def cpu_ms(process):
    with open(f"/proc/{process.pid}/schedstat") as file:
        main = int(file.read().split()[0])
    total = 0
    for task in os.listdir(f"/proc/{process.pid}/task"):
        try:
            with open(f"/proc/{process.pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
        except FileNotFoundError:
            pass
    return max(main, total) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=int, default=10)
    parser.add_argument("--bpf", default="")
    parser.add_argument("skua")
    wanted = parser.parse_args()
    net = f"bench-captures-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", net], check=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            pairs = range(1, wanted.captures + 1)
            batch = "".join(
                f"link add c{i} type veth peer name d{i}\nlink set c{i} up\nlink set d{i} up\n" for i in pairs
            )
            subprocess.run(["ip", "-n", net, "-batch", "-"], input=batch, text=True, check=True)
            measure(wanted, net, folder, pairs)
        finally:
            subprocess.run(["ip", "netns", "del", net], check=True)


def measure(wanted, net, folder, pairs):
    path = f"{folder}/skua.sock"
    config = f"{folder}/skua.yaml"
    with open(config, "w") as file:
        file.write('history: {directory: ""}\n')
    command = [wanted.skua, "run", "--config", config, "--all-netns", "--interface", "lo"]
    command += ["--socket", path, "--listen", "127.0.0.1:18299"]
    with open(f"{folder}/log", "w") as log:
        skua = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait("an answer", lambda: ask(path, "GET", "/api/status"))
        known = {"GremlinQuery": f'G.V().Has("Name", "c{pairs[-1]}")'}
        wait("the interfaces", lambda: ask(path, "POST", "/api/topology", known))
        print(f"{'capture':>8} {'ms until active':>16} {'CPU ms':>8}")
        for number in pairs:
            time.sleep(0.3)
            before, begun = cpu_ms(skua), time.monotonic()
            capture = {"GremlinQuery": f'G.V().Has("Name", "c{number}")', "Type": "ebpf", "BPFFilter": wanted.bpf}
            made = ask(path, "POST", "/api/capture", capture)["UUID"]

            def active():
                nodes = ask(path, "GET", f"/api/capture/{made}")["Nodes"]
                return nodes and all(node["State"] == "active" for node in nodes)

            wait(f"capture {number}", active)
            print(f"{number:8} {(time.monotonic() - begun) * 1e3:16.0f} {cpu_ms(skua) - before:8.0f}", flush=True)
    finally:
        skua.terminate()
        skua.wait()


if __name__ == "__main__":
    main()
