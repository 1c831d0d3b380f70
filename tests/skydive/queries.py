"""One lab, watched by Skydive and by Skua at once: both get the same queries, and their answers are compared.

queries.tsv has the queries, and why the answers to some of them differ. `{web0}` stands for the identifier of the node of
that name, which each of the two has for itself.
"""

import collections
import ctypes
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

import lab as labs
import table

HERE = pathlib.Path(__file__).parent
LAB = HERE.parents[1] / "docs/lab/lab"
QUERIES = HERE / "queries.tsv"
SKYDIVE = ("127.0.0.1", 8082)
CLONE_NEWNET, CLONE_NEWPID = 0x4000_0000, 0x2000_0000
# Where both capture.
CAPTURES = ("web0", "up0", "vx10")
THEIRS = """
host_id: lab
analyzer: {{listen: "{address}"}}
agent: {{listen: "127.0.0.1:8081", topology: {{probes: [ovsdb]}}}}
flow: {{update: 2, expire: 600, application_timeout: {{arp: 600, dns: 600}}}}
etcd: {{data_dir: "{folder}/etcd", listen: "127.0.0.1:12379"}}
ovs: {{ovsdb: "unix://{folder}/lab/db.sock"}}
logging: {{level: WARNING}}
"""
OURS = """
host: lab
agent: {{all_netns: true, flow: {{ebpf: {{kernel_scan_interval: 2s}}}}}}
flow: {{tunnels: true}}
captures: {{on_demand: true}}
history: {{directory: ""}}
topology: {{processes: false, guests: false}}
ovs: {{target: "unix:{folder}/lab/db.sock"}}
api: {{listen: "127.0.0.1:9082", socket: "{folder}/skua.sock", users: "{folder}/users"}}
"""
# A conversation of TCP with data both ways. It stays open: Skydive forgets one that has ended.
SERVER = "import socket; s = socket.create_server(('10.99.1.3', 7000)); c, _ = s.accept(); c.sendall(c.recv(9) * 2); c.recv(9)"
CLIENT = "import socket; c = socket.create_connection(('10.99.1.3', 7000)); c.sendall(b'question'); c.recv(99); input()"


class Local(http.client.HTTPConnection):
    """HTTP over a socket of the file system."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class Side:
    """One of the two: asks it, and knows its nodes."""

    def __init__(self, connect):
        self.connect = connect

    def request(self, method, path, body=None):
        connection = self.connect()
        data = body if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        return answer.status, text

    def ask(self, query):
        """The answer, or None and why there is none."""
        status, text = self.request("POST", "/api/topology", {"GremlinQuery": query})
        if status == 204:
            return [], ""
        if status != 200:
            return None, text.strip()
        return json.loads(text), ""

    def learn(self):
        self.nodes = {node["ID"]: node for node in self.ask("G.V()")[0] or []}

    def place(self, identifier):
        """A name for a node that both have."""
        metadata = self.nodes.get(identifier, {}).get("Metadata", {})
        return metadata.get("TID") or f"{metadata.get('Type')} {metadata.get('Name')}"

    def fill(self, query):
        def identifier(match):
            name, _, kind = match.group(1).partition(":")
            for node in self.nodes.values():
                metadata = node["Metadata"]
                if metadata.get("Name") == name and kind in ("", metadata.get("Type")):
                    return node["ID"]
            return "none"

        return re.sub(r"\{([\w.:-]+)\}", identifier, query)

    def meaning(self, one):
        """What an element is, without what is each one's own: identifiers, times, metadata that only one has."""
        if isinstance(one, list):
            return "[" + " ".join(self.meaning(part) for part in one) + "]"
        if not isinstance(one, dict):
            return json.dumps(one)
        if "LayersPath" in one:
            metric = one["Metric"]
            counts = [metric.get(key, 0) for key in ("ABPackets", "BAPackets", "ABBytes", "BABytes")]
            ends = [(one.get(layer) or {}).get(end) for layer in ("Network", "Transport") for end in "AB"]
            return f"flow at {one['NodeTID']} {one['LayersPath']} {ends} {counts}"
        if "Parent" in one and "Metadata" in one:
            kind = one["Metadata"].get("RelationType")
            return f"edge {kind} {self.place(one['Parent'])} > {self.place(one['Child'])}"
        if "Metadata" in one and "ID" in one:
            return f"node {self.place(one['ID'])}"
        if "Nodes" in one and "Edges" in one:
            return f"graph {len(one['Nodes'] or [])} {len(one['Edges'] or [])}"
        return "{" + ", ".join(f"{key}: {self.meaning(one[key])}" for key in sorted(one)) + "}"

    def elements(self, answer):
        if isinstance(answer, dict) and "LayersPath" not in answer:
            return [f"{key}: {self.meaning(one)}" for key, one in answer.items()]
        return [self.meaning(one) for one in (answer if isinstance(answer, list) else [answer])]


def compare(theirs, ours, query):
    """A verdict, and what tells the two answers apart."""
    (their_answer, their_error), (our_answer, our_error) = (side.ask(side.fill(query)) for side in (theirs, ours))
    if their_answer is None or our_answer is None:
        if their_answer is None and our_answer is None:
            return "both refuse", f"{their_error[:80]} / {our_error[:80]}"
        which = "Skydive refuses" if their_answer is None else "Skua refuses"
        return which, table.short(their_error or our_error, 160)
    if their_answer == our_answer:
        return "identical", ""
    left, right = collections.Counter(theirs.elements(their_answer)), collections.Counter(ours.elements(our_answer))
    if left == right:
        return "same", ""
    missing, more = left - right, right - left
    elements = (one for one in right if one.startswith(("node ", "edge ", "flow ")))
    doubled = [one for one in elements if right[one] > max(1, left[one])]
    said = f"missing {sum(missing.values())}: {list(missing)[:9]}; more {sum(more.values())}: {list(more)[:9]}"
    if doubled:
        return "doubled", f"{doubled[:3]}; {said}"
    return ("more" if not missing else "differs"), said


def known():
    """Queries, each with its verdict and reason if it is not to be the same."""
    for line in QUERIES.read_text().splitlines():
        if line and not line.startswith("#"):
            query, verdict, reason = (line.split("\t") + ["", ""])[:3]
            yield query, verdict, reason


def enter(name):
    """This process and its children are in a network namespace from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), name)


class Both:
    """The lab, and both programs in its host."""

    def __init__(self, skydive, folder):
        self.folder, self.children = folder, []
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SKUA_")}
        self.environment |= {"LAB_DIR": f"{folder}/lab"}
        labs.call(LAB, "up", env=self.environment)
        enter("lab-host")
        for name, config in (("skydive.yml", THEIRS), ("skua.yml", OURS)):
            (folder / name).write_text(config.format(folder=folder, address="%s:%d" % SKYDIVE))
        login = ["--role", "admin", "--password-file", "-", "--file", folder / "users"]
        labs.call(labs.SKUA, "user", "add", labs.USER, *login, input=labs.PASSWORD)
        self.child("skydive.log", skydive.client, "allinone", "-c", folder / "skydive.yml")
        self.child("skua.log", labs.SKUA, "run", "--config", folder / "skua.yml")
        self.theirs = Side(lambda: http.client.HTTPConnection(*SKYDIVE, timeout=60))
        self.ours = Side(lambda: Local(f"{folder}/skua.sock"))

    def child(self, log, *command):
        with open(self.folder / log, "w") as out:
            words = [str(word) for word in command]
            self.children.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=out, env=self.environment))

    def end(self):
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
        subprocess.run([LAB, "down"], env=self.environment, capture_output=True)

    def until(self, query, holds):
        """Waits until a query has an answer that holds, at both."""

        def answers(side):
            try:
                answer, _ = side.ask(query)
            except (OSError, ValueError, http.client.HTTPException):
                return False
            return answer is not None and holds(answer)

        for side in (self.theirs, self.ours):
            labs.wait(f"{query} at {'Skua' if side is self.ours else 'Skydive'}", lambda: answers(side))

    def steady(self):
        """Waits until neither changes what it says of the graph."""
        last, since = None, time.monotonic()
        end = since + labs.PATIENCE
        while time.monotonic() < end:
            now = [side.ask("G.V().Count()")[0] for side in (self.theirs, self.ours)]
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > 3:
                return
            time.sleep(0.3)

    def capture(self):
        for name in CAPTURES:
            body = {"GremlinQuery": f"G.V().Has('Name', '{name}').Has('Type', Ne('netns')).HasKey('IfIndex')", "Type": "afpacket"}
            if name == "vx10":
                body["GremlinQuery"] = "G.V().Has('IPV4', '10.99.3.1/24')"
            for side in (self.theirs, self.ours):
                status, text = side.request("POST", "/api/capture", body | {"ExtraTCPMetric": True})
                if status not in (200, 201):
                    raise RuntimeError(f"capture at {name}: {status} {text}")
        self.until("G.V().Has('Captures.State', 'active').Count()", lambda count: count == len(CAPTURES))

    def traffic(self):
        labs.call(LAB, "traffic", env=self.environment)
        web = ["nsenter", "--net=/run/netns/lab-web", "--"]
        labs.call(*web, "ping", "-c", "3", "-i", "0.2", "10.99.3.2")
        labs.call(*web, "ping", "-c", "2", "-i", "0.2", "10.99.1.3")
        self.child("server.log", "nsenter", "--net=/run/netns/lab-db", "--", "python3", "-c", SERVER)
        listens = ["nsenter", "--net=/run/netns/lab-db", "--", "ss", "-Hltn", "sport = :7000"]
        labs.wait("the server of db", lambda: labs.call(*listens))
        self.child("client.log", *web, "python3", "-c", CLIENT)
        try:
            self.until("G.Flows().Has('Transport', 7000).Has('Metric.BAPackets', Gt(1)).Count()", lambda count: count > 0)
        except TimeoutError as late:
            if not self.theirs.ask("G.Flows()")[0]:
                raise RuntimeError("Skydive answers no query for flows: repair graffiti/websocket/message.go (docs/skydive.md)") from late
            raise
        # Packets of ARP and of IPv6 go on for some seconds, and what flows say of their last update.
        time.sleep(12)


def work(skydive, verbose):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="skua-queries-"))
    both = None
    try:
        both = Both(skydive, folder)
        both.until("G.V().Has('Name', 'lab-vm2').Out('Name', 'eth0').HasKey('IPV4')", bool)
        both.until("G.V().Has('Type', 'ovsbridge')", bool)
        both.steady()
        both.capture()
        both.traffic()
        for side in (both.theirs, both.ours):
            side.learn()
        rows = []
        for query, verdict, reason in known():
            found, said = compare(both.theirs, both.ours, query)
            if found not in ("identical", "same", verdict):
                # What counts on while both are asked may differ once.
                found, said = compare(both.theirs, both.ours, query)
            if verbose and found not in ("identical", "same", verdict):
                print(f"---- {found} {said}")
                for side in (both.theirs, both.ours):
                    print(f"{query}\n   {str(side.ask(side.fill(query)))[:300000]}")
            rows.append((query, found, verdict, reason, said))
        return rows
    finally:
        if both:
            both.end()


def isolated(skydive, asked):
    """In a process with a network and mounts of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            labs.isolate()
            # Skua shows the namespaces of all processes that it sees: only those of the lab.
            ctypes.CDLL(None).unshare(CLONE_NEWPID)
            if first := os.fork():
                os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
            labs.call("mount", "-t", "proc", "proc", "/proc")
            with os.fdopen(writer, "w") as out:
                json.dump(work(skydive, asked.verbose), out)
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as given:
        text = given.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else []


def run(skydive, asked):
    rows = isolated(skydive, asked)
    if not rows:
        return 1
    shown, failed = [], 0
    for query, found, verdict, reason, said in rows:
        good = found in ("identical", "same") or found == verdict
        failed += not good
        shown.append((query, found if good else f"FAIL: {found}", reason if good else said))
    if asked.verbose:
        print("\n".join("\t".join(row) for row in rows))
    table.show(("query", "", "why"), shown)
    return failed
