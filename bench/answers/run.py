#!/usr/bin/env python3
"""What large answers cost the `skua run` that gives them: time, memory, and how long others wait meanwhile."""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from common import arguments, finish, machine, say, spread, table

SOCKET = "/run/skua/skua.sock"
# As many words as a filter may have.
PORTS = "%20or%20".join(f"port%20{port}" for port in range(5000, 5120))
QUESTIONS = [
    ("`/api/flows` with a filter of 120 ports, six at once", 6, "GET", f"/api/flows?filter={PORTS}", None),
    ("`/api/flows`", 1, "GET", "/api/flows", None),
    ("`/api/flows`, four at once", 4, "GET", "/api/flows", None),
    ("`G.Flows()`", 1, "POST", "/api/topology", "G.Flows()"),
    ("`G.Flows()`, four at once", 4, "POST", "/api/topology", "G.Flows()"),
    ("`G.Flows().Metrics()`", 1, "POST", "/api/topology", "G.Flows().Metrics()"),
    ("`G.Flows().Sort()`", 1, "POST", "/api/topology", "G.Flows().Sort()"),
]


def ask(method, path, query=None):
    """Status and bytes of an answer, read and thrown away."""
    connection = http.client.HTTPConnection("localhost", timeout=120)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(120)
    connection.sock.connect(SOCKET)
    body = json.dumps({"GremlinQuery": query}) if query else None
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    answer = connection.getresponse()
    size, first = 0, b""
    while piece := answer.read(1 << 20):
        size += len(piece)
        first = first or piece[:200]
    connection.close()
    return answer.status, size, first


def memory(pid):
    """Resident MiB: now, and at most since the last reset."""
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file if line.startswith(("VmRSS", "VmHWM")))
    return [int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM")]


def measure(pid, count, method, path, query):
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")
    before, _ = memory(pid)
    answers, waited, done = [], [], threading.Event()

    def health():
        while not done.is_set():
            begin = time.monotonic()
            ask("GET", "/health")
            waited.append(time.monotonic() - begin)
            time.sleep(0.02)

    watcher = threading.Thread(target=health)
    watcher.start()
    begin = time.monotonic()
    threads = [threading.Thread(target=lambda: answers.append(ask(method, path, query))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begin
    done.set()
    watcher.join()
    _, most = memory(pid)
    time.sleep(1)
    after, _ = memory(pid)
    wrong = [answer for answer in answers if answer[0] != 200]
    if wrong:
        say(f"status {wrong[0][0]}: {wrong[0][2].decode().strip()}")
    return {"seconds": took, "mib": sum(size for _, size, _ in answers) / 2**20, "before": before, "most": most - before,
            "after": after - before, "health_ms": max(waited) * 1000, "status": sorted(answer[0] for answer in answers)}


def send(flows):
    """That many conversations of one packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("10.0.0.1", 5000))
        for number in range(flows):
            host, port = divmod(number, 50_000)
            while True:
                try:
                    one.sendto(b"x" * 20, (f"10.0.1.{1 + host}", 1024 + port))
                    break
                except OSError:
                    time.sleep(0.001)


def main():
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--flows", type=int, default=150_000)
    options = parser.parse_args()
    options.skua = os.path.abspath(options.skua)
    if "ANSWERS_INSIDE" not in os.environ:
        os.execvpe("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv], os.environ | {"ANSWERS_INSIDE": "1"})
    # The socket of a Skua that runs on this host stays as it is.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    for line in ["link set lo up", "link add d0 type veth peer name d1", "address add 10.0.0.1/8 dev d0", "link set d0 arp off", "link set d1 up", "link set d0 up"]:
        subprocess.run(["ip", *line.split()], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SKUA_")}
    environment |= {"SKUA_CONFIG": "/dev/null", "SKUA_HISTORY_DIRECTORY": ""}
    with tempfile.TemporaryFile() as log:
        skua = subprocess.Popen([options.skua, "run", "--interface", "d0", "--listen", "127.0.0.1:8082", "--scan-interval", "1s"],
                                env=environment, stdout=log, stderr=log)
        try:
            while not os.path.exists(SOCKET):
                time.sleep(0.1)
            time.sleep(1)
            send(options.flows)
            time.sleep(3)
            _, _, summary = ask("GET", "/api/summary")
            results = []
            for question in QUESTIONS:
                say(question[0])
                rounds = [measure(skua.pid, *question[1:]) for _ in range(options.rounds)]
                results.append({"question": question[0], "rounds": rounds})
        finally:
            skua.terminate()
            skua.wait(30)
    rows = []
    for result in results:
        of = lambda key: spread([one[key] for one in result["rounds"]])
        cell = lambda key, digits: "{median:.{0}f} ({min:.{0}f} to {max:.{0}f})".format(digits, **of(key))
        status = "/".join(str(code) for code in sorted({code for one in result["rounds"] for code in one["status"]}))
        rows.append([result["question"], status, cell("seconds", 1), cell("mib", 0), cell("most", 0), cell("after", 0), cell("health_ms", 0)])
    print(f"{options.flows} conversations; {machine()}\n")
    table(["question", "status", "s", "MiB sent", "MiB more at most", "MiB more a second later", "longest wait for `/health`, ms"], rows)
    finish(options, "answers", {"flows": options.flows, "results": results})


main()
