"""What the two guests say to each other: numbered datagrams, each answered for by the other, and a stream.

    talk.py A|B DATAGRAMS BYTES     in a guest, whose network card is the only one
"""

import hashlib
import random
import socket
import subprocess
import sys
import time

ADDRESS = {"A": "10.66.0.1", "B": "10.66.0.2"}
CONTROL, DATAGRAMS, STREAM = 7000, 7001, 7002
# Datagrams on the way at a time: what a guest's queues have room for.
BATCH = 50


def payload(number):
    """Of datagram `number`; no two are alike."""
    rng = random.Random(number)
    return b"%08d" % number + rng.randbytes(rng.choice([0, 1, 10, 200, 700, 1464]))


def stream(count):
    return random.Random(count).randbytes(count)


def card(who):
    subprocess.run(["modprobe", "virtio_net"], check=True)
    end = time.monotonic() + 60
    while subprocess.run(["ip", "link", "set", "eth0", "up"], stderr=subprocess.DEVNULL).returncode:
        if time.monotonic() > end:
            sys.exit("there is no network card")
        time.sleep(0.1)
    subprocess.run(["ip", "addr", "add", f"{ADDRESS[who]}/24", "dev", "eth0"], check=True)


def sends(datagrams, count):
    end = time.monotonic() + 240
    while True:
        try:
            control = socket.create_connection((ADDRESS["B"], CONTROL), timeout=5)
            break
        except OSError:
            if time.monotonic() > end:
                sys.exit("the other guest does not answer")
            time.sleep(0.5)
    control.settimeout(120)
    lines = control.makefile()
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for first in range(0, datagrams, BATCH):
        for number in range(first, min(first + BATCH, datagrams)):
            out.sendto(payload(number), (ADDRESS["B"], DATAGRAMS))
        # The other one has all of them.
        if lines.readline() != f"{min(first + BATCH, datagrams)}\n":
            sys.exit("datagrams were lost between the guests")
    with socket.create_connection((ADDRESS["B"], STREAM), timeout=120) as talk:
        talk.sendall(stream(count))
    if lines.readline() != f"{hashlib.sha256(stream(count)).hexdigest()}\n":
        sys.exit("the stream is another one")
    print(f"A: {datagrams} datagrams and {count} bytes came to B as they were sent")


def receives(datagrams, count):
    listeners = {port: socket.create_server(("", port)) for port in (CONTROL, STREAM)}
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    taken.bind(("", DATAGRAMS))
    taken.settimeout(120)
    listeners[CONTROL].settimeout(240)
    control, _ = listeners[CONTROL].accept()
    for number in range(datagrams):
        data = taken.recv(65536)
        if data != payload(number):
            sys.exit(f"datagram {number} is {data[:16]}")
        if (number + 1) % BATCH == 0 or number + 1 == datagrams:
            control.sendall(f"{number + 1}\n".encode())
    talk, _ = listeners[STREAM].accept()
    found = hashlib.sha256()
    while data := talk.recv(1 << 16):
        found.update(data)
    control.sendall(f"{found.hexdigest()}\n".encode())
    # Until the other one is gone.
    control.recv(1)


if __name__ == "__main__":
    card(sys.argv[1])
    {"A": sends, "B": receives}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
