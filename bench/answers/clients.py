#!/usr/bin/env python3
"""How long drains wait while 1,000 clients ask for 100,000 flows: each asks again when it has its answer."""

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from common import arguments, finish, machine, say, table

PORT = 8082
QUESTIONS = ["/api/flows", "/api/flows?limit=100", "/api/flows?by=process", "/api/summary"]
# One token may wait for 32 answers; so all clients are served, none is refused for asking too much.
OF_A_TOKEN = 20
# How long a client waits that was refused, seconds.
PAUSE = 0.5
METRICS = ["skua_drain_wait_seconds_total", "skua_drain_wait_max_seconds", "skua_drains_total", "skua_flows_total"]


def metrics(token):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        lines = [line.split() for line in answer.read().decode().splitlines()]
    return {line[0]: float(line[1]) for line in lines if line[0] in METRICS}


class Client:
    """Asks, reads what comes until the server closes, and asks again."""

    def __init__(self, token, path, selector):
        self.request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode()
        self.selector = selector
        self.answered = self.failed = self.again = 0
        self.begin()

    def begin(self):
        self.status, self.again = b"", 0
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", PORT))
        self.selector.register(self.socket, selectors.EVENT_WRITE, self)

    def go_on(self):
        try:
            if self.selector.get_key(self.socket).events == selectors.EVENT_WRITE:
                self.socket.send(self.request)
                self.selector.modify(self.socket, selectors.EVENT_READ, self)
                return
            read = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        if read:
            self.status = self.status or read[:12]
            return
        self.selector.unregister(self.socket)
        self.socket.close()
        if self.status.endswith(b"200"):
            self.answered += 1
            self.begin()
        else:
            # The server has as many connections as it may have, or answers that wait.
            self.failed += 1
            self.again = time.monotonic() + PAUSE


def clients(options, path):
    """How many answers clients got, and how often they were refused."""
    selector = selectors.EpollSelector()
    all_of_them = [Client(options.tokens[number // OF_A_TOKEN], path, selector) for number in range(options.clients)]
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        for key, _ in selector.select(0.1):
            key.data.go_on()
        now = time.monotonic()
        for client in all_of_them:
            if client.again and client.again < now:
                client.begin()
    for client in all_of_them:
        client.socket.close()
    return {"answered": sum(client.answered for client in all_of_them), "failed": sum(client.failed for client in all_of_them)}


def send(flows, stop=None):
    """A packet of each conversation; with `stop` 5,000 a second until then."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("10.0.0.1", 5000))
        number = 0
        while number < flows if stop is None else not stop.is_set():
            host, port = divmod(number % flows, 50_000)
            try:
                one.sendto(b"x" * 20, (f"10.0.1.{1 + host}", 1024 + port))
                number += 1
            except OSError:
                time.sleep(0.001)
            if stop is not None and number % 50 == 0:
                time.sleep(0.01)


def measure(options, environment, path):
    say(path)
    with tempfile.TemporaryFile() as log:
        skua = subprocess.Popen([options.skua, "run", "--interface", "d0", "--listen", f"127.0.0.1:{PORT}", "--scan-interval", "1s"],
                                env=environment, stdout=log, stderr=log)
        try:
            for _ in range(300):
                time.sleep(0.1)
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                        break
            send(options.flows)
            time.sleep(3)
            before, stop = metrics(options.tokens[0]), threading.Event()
            sender = threading.Thread(target=send, args=(options.flows, stop))
            sender.start()
            result = clients(options, path)
            stop.set()
            sender.join()
            after = metrics(options.tokens[0])
        finally:
            skua.terminate()
            skua.wait(60)
    drains = after["skua_drains_total"] - before["skua_drains_total"]
    waited = after["skua_drain_wait_seconds_total"] - before["skua_drain_wait_seconds_total"]
    return result | {"path": path, "flows": after["skua_flows_total"], "drains": drains, "mean_ms": 1000 * waited / max(drains, 1),
                     "quiet_ms": 1000 * before["skua_drain_wait_max_seconds"], "longest_ms": 1000 * after["skua_drain_wait_max_seconds"]}


def main():
    parser = arguments(__doc__)
    parser.add_argument("--flows", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=30, help="for each question")
    options = parser.parse_args()
    options.skua = os.path.abspath(options.skua)
    if "CLIENTS_INSIDE" not in os.environ:
        os.execvpe("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv], os.environ | {"CLIENTS_INSIDE": "1"})
    # The socket of a Skua that runs on this host stays as it is.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    for line in ["link set lo up", "link add d0 type veth peer name d1", "address add 10.0.0.1/8 dev d0", "link set d0 arp off", "link set d1 up", "link set d0 up"]:
        subprocess.run(["ip", *line.split()], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SKUA_")}
    environment |= {"SKUA_CONFIG": "/dev/null", "SKUA_HISTORY_DIRECTORY": ""}
    folder = tempfile.mkdtemp(dir="/run")
    os.chmod(folder, 0o700)
    environment["SKUA_API_TOKENS"] = f"{folder}/tokens"
    create = [options.skua, "token", "create", "--file", f"{folder}/tokens", "--role", "read"]
    names = [f"client-{number}" for number in range(1 + options.clients // OF_A_TOKEN)]
    options.tokens = [subprocess.run([*create, name], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip() for name in names]
    results = [measure(options, environment, path) for path in QUESTIONS]
    print(f"{options.clients} clients, {options.flows} conversations, {options.seconds} s each; {machine()}\n")
    rows = [[f"`{one['path']}`", one["answered"], one["failed"], f"{one['drains']:.0f}", f"{one['quiet_ms']:.2f}", f"{one['mean_ms']:.2f}", f"{one['longest_ms']:.2f}"]
            for one in results]
    table(["question", "answers", "refused", "drains", "longest wait of a drain before, ms", "mean wait, ms", "longest wait, ms"], rows)
    finish(options, "clients", results)


main()
