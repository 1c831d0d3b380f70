"""CPU time of `skua top` and of the `skua run` that it asks, with 10,000 flows that go on, view by view."""

import os
import pty
import subprocess
import sys
import threading
import time

from common import Namespace, arguments, cpu_seconds, finish, machine, say, stop, table, wait_until_watching

FLOWS = 10_000
PORT = 9999
SOCKET = "/run/skua/bench-top.sock"
API = f"unix:{SOCKET}"
VIEWS = ["overview", "flows", "sockets", "services", "interfaces", "topology", "events"]

# One datagram after the other over loopback, each to another address: so each is another conversation.
SEND = f"""
import socket, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("0.0.0.0", {PORT}))
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for number in range({FLOWS}):
        sender.sendto(b"x" * 100, (f"127.1.{{number // 250}}.{{number % 250 + 1}}", {PORT}))
        if number % 20 == 19:
            time.sleep(0.01)
"""


def drain(terminal):
    """Reads what is drawn, as a terminal would."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass


def start_top(options, namespace):
    """`skua top` on a pseudo-terminal of 80x24; returns its process and the keyboard."""
    keyboard, line = pty.openpty()
    subprocess.run(["stty", "-F", os.ttyname(line), "rows", "24", "cols", "80"], check=True)
    environment = dict(os.environ, TERM="xterm-256color", LC_ALL="C.UTF-8")
    command = namespace.command([options.skua, "top", "--analyzer", API])
    top = subprocess.Popen(command, stdin=line, stdout=line, stderr=line, env=environment)
    os.close(line)
    threading.Thread(target=drain, args=[keyboard], daemon=True).start()
    return top, keyboard


def main():
    options = arguments(__doc__)
    options.add_argument("--seconds", type=int, default=30, help="for each view")
    options = options.parse_args()
    with Namespace("top") as namespace:
        run = subprocess.Popen(namespace.command([options.skua, "run", "--interface", "lo", "--socket", SOCKET]),
                               stdout=subprocess.PIPE, text=True)
        sender = subprocess.Popen(namespace.command([sys.executable, "-c", SEND]), stderr=subprocess.DEVNULL)
        top = None
        try:
            wait_until_watching(run)
            time.sleep(15)
            rows, results = [], []

            def measure(view):
                say(f"{view}: {options.seconds} s")
                watched = [run] if top is None else [run, top]
                before = [sum(cpu_seconds(p.pid)) for p in watched]
                time.sleep(options.seconds)
                used = [sum(cpu_seconds(p.pid)) - b for p, b in zip(watched, before)]
                shares = [100 * seconds / options.seconds for seconds in used] + [0.0]
                results.append({"view": view, "run_percent": shares[0], "top_percent": shares[1]})
                rows.append([view, f"{shares[1]:.2f}" if top else "-", f"{shares[0]:.2f}"])

            measure("(nobody looks)")
            top, keyboard = start_top(options, namespace)
            time.sleep(5)
            for number, view in enumerate(VIEWS, 1):
                os.write(keyboard, str(number).encode())
                time.sleep(2)
                measure(view)
            os.write(keyboard, b" ")
            time.sleep(2)
            measure("frozen")
            os.write(keyboard, b"q")
            top.wait(30)
        finally:
            for process in [top, sender, run]:
                if process is not None:
                    stop(process)
    table(["view", "`skua top`, % of a core", "`skua run`, % of a core"], rows)
    print(f"load: {machine()['load']:.1f}")
    finish(options, "top", results)


main()
