"""Each subcommand of Skydive's client."""

import json
import struct
import subprocess

import lab as labs
import table

# Two namespaces on a bridge of Open vSwitch, as most of Skydive's tests have.
NETWORK = """
ovs-vsctl add-br br-int
ip netns add vm1
ip netns add vm2
ip link add vm1-eth0 type veth peer name eth0 netns vm1
ip link add vm2-eth0 type veth peer name eth0 netns vm2
ip -n vm1 link set lo up
ip -n vm1 link set eth0 up
ip -n vm2 link set eth0 up
ip -n vm1 address add 192.168.0.1/24 dev eth0
ip -n vm2 address add 192.168.0.2/24 dev eth0
ip link set vm1-eth0 up
ip link set vm2-eth0 up
ovs-vsctl add-port br-int vm1-eth0
ovs-vsctl add-port br-int vm2-eth0
"""
VM1 = "G.V().Has('Name', 'vm1').Out('Name', 'eth0')"
VM2 = "G.V().Has('Name', 'vm2').Out('Name', 'eth0')"
WORKFLOW = """
Name: "Sum"
Description: "adds two numbers"
Parameters:
  - Name: a
    Description: a number
    Type: integer
  - Name: b
    Description: another
    Type: integer
Source: |
  function Sum(a, b) {
    return {"Sum": Number(a) + Number(b), "Nodes": client.G.V().Has("Name", "vm1").result().length}
  }
"""


class Failed(Exception):
    pass


class Client:
    """Skydive's client, and a row of the table for each call."""

    def __init__(self, skydive, lab):
        self.program, self.rows = skydive.client, []
        login = {"SKYDIVE_ANALYZER": labs.ADDRESS, "SKYDIVE_USERNAME": labs.USER, "SKYDIVE_PASSWORD": labs.PASSWORD}
        self.environment = lab.environment | login | {"HOME": str(lab.folder)}

    def ask(self, *words, text=None):
        command = [self.program, "client", *words]
        done = subprocess.run(command, capture_output=True, env=self.environment, timeout=60, input=text)
        if done.returncode or b"ERROR" in done.stderr:
            raise Failed((done.stderr + done.stdout).decode(errors="replace").strip())
        return done.stdout

    def json(self, *words):
        out = self.ask(*words)
        try:
            return json.loads(out)
        except ValueError as error:
            raise Failed(f"{error}: {out[:200]!r}") from error

    def step(self, name, work, *words):
        """A row: whether the work succeeds; what it gives."""
        try:
            given, fault = work(*words), ""
        except (Failed, TimeoutError, LookupError, ValueError, TypeError, subprocess.TimeoutExpired) as error:
            given, fault = None, f"{type(error).__name__}: {error}" if not isinstance(error, Failed) else str(error)
        # It reads nodes and edges into a pointer that is not set, whatever a server answers.
        own = fault.startswith("panic: runtime error: invalid memory address")
        self.rows.append((name, "its own fault" if own else "FAIL" if fault else "ok", fault))
        return given


def holds(condition, what):
    if not condition:
        raise Failed(what)


def resource(client, name, create, update=None):
    """Creates, lists, gets and deletes; what was created."""
    made = client.step(f"{name} create", lambda: client.json(name, "create", *create))
    key = (made or {}).get("UUID") or (made or {}).get("ID")
    if not key:
        return
    client.step(f"{name} list", lambda: holds(key in client.json(name, "list"), "it is not in the list"))
    got = client.step(f"{name} get", lambda: client.json(name, "get", key))
    if got:
        differ = {field for field in made if made[field] != got.get(field) and made[field]}
        differ -= {"Count", "CreateTime", "UpdatedAt", "Revision"}
        client.step(f"{name} get: as created", lambda: holds(not differ, f"{differ}: {made} {got}"))
    if update:
        client.step(f"{name} update", lambda: client.ask(name, "update", key, *update))
    client.step(f"{name} delete", lambda: client.ask(name, "delete", key))
    client.step(f"{name} delete: is gone", lambda: holds(key not in client.json(name, "list"), "it is still there"))


def captured(client):
    """A capture, packets injected through it, and what queries say of them."""
    create = ["capture", "create", "--gremlin", VM1, "--rawpacket-limit", "5"]
    made = client.step("capture create", lambda: client.json(*create))
    if not made:
        return
    key = made["UUID"]
    query = f"{VM1}.Has('Captures.ID', '{key}', 'Captures.State', 'active')"
    active = lambda: labs.wait("the capture is not active", lambda: client.json("query", query), 20)
    client.step("query: the capture is active", active)
    create = ["--src", VM1, "--dst", VM2, "--type", "icmp4", "--count", "5", "--interval", "100", "--id", "77"]
    injected = client.step("injection create", lambda: client.json("injection", "create", *create))
    if injected:
        number = injected["UUID"]
        client.step("injection list", lambda: holds(number in client.json("injection", "list"), "it is not there"))
        client.step("injection get", lambda: client.json("injection", "get", number))
    flows = f"G.Flows().Has('CaptureID', '{key}', 'ICMP.ID', 77, 'Metric.ABPackets', 5, 'Metric.BAPackets', 5)"
    found = lambda: labs.wait("no flow of 5 packets each way", lambda: client.json("query", flows), 20)
    client.step("query: the flow of the injection", found)
    client.step("query --format pcap", lambda: holds(
        client.ask("query", f"{flows}.RawPackets()", "--format", "pcap")[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"), "no pcap"))
    if injected:
        client.step("injection delete", lambda: client.ask("injection", "delete", injected["UUID"]))
    client.step("capture list", lambda: holds(client.json("capture", "list")[key]["Count"] == 1, "Count is not 1"))
    client.step("capture get", lambda: client.json("capture", "get", key))
    client.step("capture delete", lambda: client.ask("capture", "delete", key))
    for option in (["--ip-defrag"], ["--extra-tcp-metric"], ["--layer-key-mode", "L3"]):
        def with_option():
            made = client.json("capture", "create", "--gremlin", VM2, *option)
            client.ask("capture", "delete", made["UUID"])
        client.step(f"capture create {' '.join(option)}", with_option)


def refused(client, option, word):
    """An option that Skua does not have is refused, and the message names it."""
    try:
        client.json("capture", "create", "--gremlin", VM2, *option)
    except Failed as error:
        holds(word in str(error), str(error))
    else:
        raise Failed("it was accepted")


def uploaded(client, skydive):
    trace = skydive.source / "flow/pcaptraces/simple-tcpv4.pcap"
    client.step("pcap --trace", lambda: client.ask("pcap", "--trace", trace))
    # The time of the first packet, behind the header of the file.
    second = struct.unpack_from("<I", trace.read_bytes(), 24)[0]
    query = f"G.At({(second + 60) * 1000}, 120).Flows().Has('LayersPath', 'Ethernet/IPv4/TCP', 'Metric.ABPackets', 5, 'Metric.BAPackets', 3)"
    client.step("pcap: its flow is there", lambda: holds(len(client.json("query", query)) == 1, "not one flow"))


def graph(client, folder):
    client.step("query --format dot", lambda: holds(client.ask("query", "G", "--format", "dot").startswith(b"digraph"), "no dot"))
    client.step("topology query", lambda: holds(client.json("topology", "query", "--gremlin", "G.V().Count()") > 5, "too few nodes"))
    exported = client.step("topology export", lambda: client.json("topology", "export"))
    if exported is None:
        return
    nodes = exported[0]["Nodes"][:1]
    nodes[0] |= {"ID": "imported-node", "Metadata": {"Name": "imported", "Type": "host"}, "Origin": "cli", "Host": "imported"}
    file = folder / "graph.json"
    file.write_text(json.dumps([{"Nodes": nodes, "Edges": []}]))
    client.step("topology import", lambda: client.ask("topology", "import", "--file", str(file)))
    there = lambda: labs.wait("it is not in the graph", lambda: client.json("query", "G.V().Has('Name', 'imported')"), 5)
    client.step("topology import: is in the graph", there)


def shell(client):
    """What it prints of a query and of the API; it reads lines."""
    text = b"console.log(client.gremlin.G().V().Has('Name', 'vm1').result().length)\nconsole.log(Object.keys(client.captures.list()).length)\n"
    def work():
        out = client.ask("shell", "--history", "/dev/null", text=text).decode(errors="replace")
        holds("1" in out and "rror" not in out, out)
    client.step("shell", work)


def workflow(client, folder):
    file = folder / "sum.yaml"
    file.write_text(WORKFLOW)
    made = client.step("workflow create", lambda: client.json("workflow", "create", "--path", str(file)))
    if not made:
        return
    client.step("workflow list", lambda: holds(made["UUID"] in client.json("workflow", "list"), "it is not there"))
    answer = {"Sum": 5, "Nodes": 1}
    client.step("workflow call", lambda: holds(client.json("workflow", "call", made["UUID"], "2", "3") == answer, "wrong"))
    client.step("workflow delete", lambda: client.ask("workflow", "delete", made["UUID"]))


def steps(skydive, lab):
    client = Client(skydive, lab)
    for line in NETWORK.split("\n"):
        if line:
            labs.call(*line.split(), env=lab.environment)
    client.step("status", lambda: client.json("status"))
    ready = lambda: labs.wait("the namespaces are not in the graph", lambda: client.json("query", f"{VM2}.HasKey('IPV4')"))
    client.step("query", ready)
    resource(client, "alert", ["--name", "a", "--expression", "G.V().Has('MTU', GT(1500))"], ["--description", "large"])
    resource(client, "node", ["--node-name", "n1", "--node-type", "fabric"], ["--add", "color=red"])
    ends = [client.json("query", f"{node}.Values('TID')") and client.json("query", node)[0]["ID"] for node in (VM1, VM2)]
    edge = ["--parent", ends[0], "--child", ends[1], "--edge-type", "layer2", "--metadata", "a=1"]
    resource(client, "edge", edge, ["--add", "color=red"])
    rule = ["--name", "r", "--node-name", "tor", "--node-type", "fabric", "--action", "create", "--metadata", "rack=7"]
    resource(client, "node-rule", rule)
    rule = ["--name", "r", "--action", "update", "--query", VM1, "--metadata", "rack=7"]
    resource(client, "node-rule", rule)
    resource(client, "edge-rule", ["--name", "e", "--src", VM1, "--dst", VM2, "--relationtype", "layer2"])
    captured(client)
    client.step("capture create --extra-layer: refused", lambda: refused(client, ["--extra-layer", "DNS"], "--extra-layer"))
    client.step("capture create --reassamble-tcp: refused", lambda: refused(client, ["--reassamble-tcp"], "--reassemble-tcp"))
    uploaded(client, skydive)
    graph(client, lab.folder)
    shell(client)
    workflow(client, lab.folder)
    return client.rows


def run(skydive, _):
    rows = labs.apart(lambda lab: steps(skydive, lab))
    table.show(("client …", "", "cause"), rows)
    return sum(row[1] == "FAIL" for row in rows)
