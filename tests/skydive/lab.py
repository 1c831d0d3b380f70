"""A network, mount and Open vSwitch of its own, with a running Skua that watches it."""

import contextlib
import ctypes
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request

SKUA = pathlib.Path(os.environ.get("SKUA") or pathlib.Path(__file__).resolve().parents[2] / "target/debug/skua")
ADDRESS = "127.0.0.1:8082"
# Where Skydive's tests expect an analyzer, which wants no login.
OPEN = ("127.0.0.1", 64500)
USER, PASSWORD = "skydive", "of the lab"
PATIENCE = 60
# In a machine of tests/kernels everything takes longer.
EMULATED = bool(os.environ.get("SKUA_KERNEL_MATRIX"))
CLONE_NEWNS, CLONE_NEWNET = 0x0002_0000, 0x4000_0000
PR_SET_PDEATHSIG = 1
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
NORTHBOUND = "/run/ovn/ovnnb_db.sock"
NORTHBOUND_SCHEMA = "/usr/share/ovn/ovn-nb.ovsschema"

# As Skydive works: flows of captures only, tunnels looked into. What Skydive's tests configure themselves is here, too:
# OpenFlow, OVN, metadata of the host, a capture from the start, and ten minutes until a flow expires.
CONFIG = """
agent:
  all_netns: true
  flow: {{ebpf: {{kernel_scan_interval: 2s}}}}
  metadata:
    mydict: {{value: 123}}
    myarrays: {{integers: [1, 2, 3], bools: [true, true], strings: [dog, cat, frog]}}
flow: {{tunnels: true, idle_timeout: 10m}}
captures:
  on_demand: true
  startup: [{{gremlin: "g.V().Has('Name','startup-vm2')"}}]
topology: {{sockets: true}}
history: {{directory: "{folder}/history"}}
alerts: {{commands: true}}
ovs: {{target: "unix:/run/openvswitch/db.sock", openflow: {{enabled: true, interval: 2s}}}}
ovn: {{northbound: "{northbound}"}}
api: {{listen: "{address}", socket: "{folder}/skua.sock", users: "{folder}/users"}}
"""

# Where the kernel has no datapath of Open vSwitch, bridges switch in user space.
VSCTL = """#!/bin/bash
words=("$@")
for ((i = 0; i < $#; i++)); do
    if [ "${words[i]}" = add-br ]; then
        words+=(-- set bridge "${words[i + 1]}" datapath_type=netdev)
    fi
done
exec /usr/bin/ovs-vsctl "${words[@]}"
"""


# Module, and how to make one, of each kind of device that tests need.
DEVICES = {
    "dummy": ("dummy", "ip link add skua0 type dummy"),
    "gre": ("ip_gre", "ip link add skua0 type gre local 127.0.0.1 remote 127.0.0.2"),
    "vlan": ("8021q", "ip link add skua0 type veth && ip link add link skua0 name skua1 type vlan id 2"),
}


@functools.cache
def offers(what):
    """Whether the kernel has devices of a kind, or a datapath of Open vSwitch (`openvswitch`)."""
    module, device = DEVICES.get(what, (what, ""))
    quiet = {"check": False, "capture_output": True}
    subprocess.run(["modprobe", module], **quiet)
    if not device:
        return os.path.isdir(f"/sys/module/{module}")
    return subprocess.run(["unshare", "--net", "sh", "-c", device], **quiet).returncode == 0


def isolate():
    """Gives this process a network and mounts of its own; they go with it and its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    call("mount", "--make-rprivate", "/")
    for folder in ("/run/netns", "/run/openvswitch", "/run/ovn"):
        os.makedirs(folder, exist_ok=True)
        call("mount", "-t", "tmpfs", "tmpfs", folder)
    call("ip", "link", "set", "lo", "up")


def call(*command, **options):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"skydive: {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def wait(what, holds, patience=PATIENCE):
    """Waits until something holds; what it gives."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.05)
    raise TimeoutError(what)


def relay(path):
    """Lets everything at OPEN in as root at the socket, byte by byte: the tests log in nowhere."""

    def copy(one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def serve():
        while True:
            client, _ = listener.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(path)
            except OSError:
                client.close()
                continue
            for pair in ((client, server), (server, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    listener = socket.create_server(OPEN, backlog=64)
    threading.Thread(target=serve, daemon=True).start()


class Lab:
    """To be used in a process of its own, which `isolate` changes."""

    def __enter__(self):
        isolate()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="skua-skydive-"))
        self.children = []
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SKUA_")}
        self.environment["PATH"] = f"{self.folder}/bin:{self.environment['PATH']}"
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def script(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def child(self, log, *command):
        with open(self.folder / log, "w") as out:
            words = [str(word) for word in command]
            self.children.append(subprocess.Popen(words, stdout=out, stderr=out, env=self.environment))
        return self.children[-1]

    def database(self, name, schema, at):
        """Starts a database server with a new database."""
        call("ovsdb-tool", "create", self.folder / name, schema)
        self.child(f"{name}.log", "ovsdb-server", self.folder / name, f"--remote=punix:{at}",
                   f"--unixctl={self.folder / name}.ctl")
        wait(f"the database {name}", lambda: os.path.exists(at))

    def start(self):
        in_kernel = offers("openvswitch")
        if not in_kernel:
            self.script("ovs-vsctl", VSCTL)
        self.script("sudo", '#!/bin/sh\nexec "$@"\n')
        if shutil.which("ovs-vswitchd"):
            at = "/run/openvswitch/db.sock"
            self.database("conf.db", SCHEMA, at)
            call("ovs-vsctl", "--no-wait", "init")
            self.child("vswitchd.log", "ovs-vswitchd", f"unix:{at}", *([] if in_kernel else ["--disable-system"]))
        northbound = os.path.exists(NORTHBOUND_SCHEMA)
        if northbound:
            self.database("nb.db", NORTHBOUND_SCHEMA, NORTHBOUND)
        call(SKUA, "user", "add", USER, "--role", "admin", "--password-file", "-", "--file", self.folder / "users", input=PASSWORD)
        config = self.folder / "skua.yaml"
        northbound = f"unix:{NORTHBOUND}" if northbound else ""
        config.write_text(CONFIG.format(folder=self.folder, address=ADDRESS, northbound=northbound))
        self.skua = self.child("skua.log", SKUA, "run", "--config", config)
        path = self.folder / "skua.sock"

        def answers():
            if self.skua.poll() is not None:
                raise RuntimeError((self.folder / "skua.log").read_text())
            with socket.socket(socket.AF_UNIX) as one:
                return one.connect_ex(str(path)) == 0

        wait("Skua", answers)
        relay(str(path))
        if EMULATED:
            self.warm_up()

    def warm_up(self):
        """In an emulated machine the kernel takes longer to check programs than tests wait for a capture: a capture that
        comes and goes leaves them loaded."""
        capture = post("/api/capture", {"GremlinQuery": "G.V().Has('Name', 'lo')"})["UUID"]
        active = "G.V().Has('Captures.State', 'active').Count()"
        wait("a capture", lambda: post("/api/topology", {"GremlinQuery": active}) > 0, 10 * PATIENCE)
        request(f"/api/capture/{capture}", "DELETE")


def apart(work):
    """Does work in a lab, in a process of its own; what it gives, which goes through JSON."""
    # A file, not a pipe: a process that is made at the same time would hold that open.
    with tempfile.NamedTemporaryFile("w+") as result:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # It ends with the process that made it.
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
                with Lab() as lab:
                    json.dump(work(lab), result)
                    result.flush()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status:
            raise RuntimeError("a lab failed")
        result.seek(0)
        return json.load(result)


def request(path, method, body=None):
    """The text that Skua answers to a request of this program."""
    head = {"Content-Type": "application/json"}
    data = json.dumps(body).encode() if body is not None else None
    asked = urllib.request.Request("http://%s:%d%s" % (*OPEN, path), data, head, method=method)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return answer.read().decode()


def post(path, body):
    """What Skua answers to a request of this program."""
    return json.loads(request(path, "POST", body))


def as_client(skydive, lab, *words):
    """What Skydive's client prints; it logs in."""
    login = {"SKYDIVE_ANALYZER": ADDRESS, "SKYDIVE_USERNAME": USER, "SKYDIVE_PASSWORD": PASSWORD}
    command = [skydive.client, "client", *words]
    return subprocess.run(command, capture_output=True, env=lab.environment | login, timeout=60).stdout
