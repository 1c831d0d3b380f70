"""The workflows that Skydive has within it, given to Skua as files."""

import json
import socket

import client as clients
import lab as labs
import table

FOLDER = "statics/workflows"


def steps(skydive, lab):
    client = clients.Client(skydive, lab)
    for line in clients.NETWORK.split("\n"):
        if line:
            labs.call(*line.split(), env=lab.environment)
    tid = lambda node: labs.wait(node, lambda: client.json("query", f"{node}.HasKey('IPV4').Values('TID')"))[0]
    ends = [tid(clients.VM1), tid(clients.VM2)]
    for path in sorted((skydive.source / FOLDER).glob("*.yaml")):
        client.step(f"create {path.name}", lambda: client.ask("workflow", "create", "--path", path))
    made = {one["Name"]: key for key, one in client.json("workflow", "list").items()}

    def call(name, *parameters):
        return client.json("workflow", "call", made[name], *parameters)

    # It looks at one flow a second after its packets, which may be one of ARP: Skydive's test tries several times, too.
    connected = lambda: labs.wait("no flow both ways", lambda: call("CheckConnectivity", *ends)["Connectivity"], 30)
    client.step("CheckConnectivity", connected)
    client.step("CheckMTU", lambda: clients.holds(call("CheckMTU", *ends) is True, "not true"))
    answer = client.step("FlowMatrix", lambda: call("FlowMatrix", "", "dot", ""))
    client.step("FlowMatrix: a graph", lambda: clients.holds(str(answer).startswith("digraph"), answer))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        port = f":{server.getsockname()[1]}"
        drawn = lambda: labs.wait("the call is not drawn", lambda: port in call("FlowMatrix", "", "dot", ""), 30)
        client.step("FlowMatrix: who calls whom", drawn)

    def validation():
        # The injection goes on while the workflow waits.
        packets = ["--src", clients.VM1, "--dst", clients.VM2, "--type", "icmp4", "--count", "100", "--interval", "100", "--id", "123"]
        client.ask("injection", "create", *packets)
        body = {"Params": [*ends, True, "icmp", "192.168.0.1", "192.168.0.2", "123", 5]}
        answer = labs.post(f"/api/workflow/{made['FlowValidation']}/call", body)
        clients.holds(answer.get("Connectivity") is True, json.dumps(answer))

    client.step("FlowValidation", validation)
    return client.rows


def run(skydive, _):
    rows = labs.apart(lambda lab: steps(skydive, lab))
    table.show(("workflow", "", "cause"), rows)
    return sum(row[1] == "FAIL" for row in rows)
