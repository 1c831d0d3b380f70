"""The capture files of Skydive's own unit tests, given to Skua: as a client does, and by `skua replay`.

captures.tsv says what Skydive's tests expect of each file, one flow a line, and where Skua says something else why it is
right. The files stay where Skydive's source is.
"""

import json
import subprocess
import urllib.request

import lab as labs
import queries
import table

HERE = queries.HERE
EXPECTED = HERE / "captures.tsv"
FOLDER = "flow/pcaptraces"
# What is the same in a flow of the API and in a record of `skua replay`.
SAME = {
    "LayersPath": "layers", "Metric.ABPackets": "ab.packets", "Metric.ABBytes": "ab.bytes",
    "Metric.BAPackets": "ba.packets", "Metric.BABytes": "ba.bytes", "Metric.RTT": "rtt", "Link.A": "link.a", "Link.B": "link.b",
}


def expected():
    """By file: flows with what is expected of them, what Skua says instead, and why."""
    files = {}
    for line in EXPECTED.read_text().splitlines():
        if line and not line.startswith("#"):
            name, theirs, ours, why = (line.split("\t") + ["", "", ""])[:4]
            files.setdefault(name, []).append((json.loads(theirs), json.loads(ours or "{}"), why))
    return files


def at(flow, key):
    """A part of a flow by a key with dots."""
    for name in key.split("."):
        flow = (flow or {}).get(name) if isinstance(flow, dict) else None
    return flow


def answered(path):
    """The flows of a file as the API has them."""
    head = {"Content-Type": "application/vnd.tcpdump.pcap"}
    request = urllib.request.Request("http://%s:%d/api/pcap" % labs.OPEN, path.read_bytes(), head)
    with urllib.request.urlopen(request, timeout=60) as answer:
        made = json.load(answer)
    query = f"G.At(NOW, FOREVER).Flows().Has('CaptureID', '{made['UUID']}').Dedup('UUID')"
    return labs.wait(f"the flows of {path.name}", lambda: labs.post("/api/topology", {"GremlinQuery": query}))


def replayed(path, *options):
    """The flows of a file as `skua replay` has them, in the words of the API."""
    out = subprocess.run([labs.SKUA, "replay", "--tunnels", "-o", "json", *options, path], capture_output=True, text=True, check=True)
    records = [json.loads(line) for line in out.stdout.splitlines()]
    return sorted(str([at(record, key) for key in SAME.values()]) for record in records)


def faults(flows, wanted, used):
    """What of a flow is not as wanted, of the one that fits best; it is not taken for another one."""
    left = [place for place in range(len(flows)) if place not in used]
    if not left:
        return ["no flow is left"]
    wrong = lambda place: [key for key, value in wanted.items() if at(flows[place], key) != value]
    best = min(left, key=lambda place: len(wrong(place)))
    used.add(best)
    return [f"{key} is {at(flows[best], key)!r}, not {wanted[key]!r}" for key in wrong(best)]


def check(path, lines):
    flows, used, rows = answered(path), set(), []
    counted = sorted(str([at(flow, key) or (0 if "Packets" in key or "Bytes" in key else None) for key in SAME]) for flow in flows)
    same = [line.replace("None", "0") for line in counted] == [line.replace("None", "0") for line in replayed(path)]
    rows.append((path.stem, "skua replay has the same flows", "ok" if same else "FAIL", "" if same else counted))
    for theirs, ours, why in lines:
        if "flows" in theirs:
            number = ours.get("flows", theirs["flows"])
            bad = [] if len(flows) == number else [f"{len(flows)} flows, not {number}"]
            what = f"{theirs['flows']} flows"
        elif "distinct" in theirs:
            key, number = theirs["distinct"]
            among = [flow for flow in flows if all(at(flow, other) == theirs[other] for other in theirs if other != "distinct")]
            found = len({at(flow, key) for flow in among})
            bad = [] if found == number else [f"{found} values of {key}, not {number}"]
            what = f"{number} values of {key}"
        elif "filter" in theirs:
            expression, number = theirs["filter"]
            found = len(replayed(path, "--filter", expression))
            bad = [] if found == number else [f"{found} flows, not {number}"]
            what = f"{number} flows of {expression}"
        elif "absent" in ours:
            ends = [key for key in theirs if key.startswith(("Network", "LayersPath"))]
            bad = ["it is there"] if any(all(at(flow, key) == theirs[key] for key in ends) for flow in flows) else []
            what = " ".join(str(theirs[key]) for key in ends)
        else:
            bad = faults(flows, theirs | ours, used)
            what = " ".join(str(theirs.get(key, "")) for key in ("LayersPath", "Network.A", "Network.B")).strip()
        verdict = "FAIL" if bad else "ok, differs" if ours else "ok"
        rows.append((path.stem, what, verdict, "; ".join(bad) or why))
    return rows


def run(skydive, _):
    folder, files = skydive.source / FOLDER, expected()
    missing = [path.stem for path in sorted(folder.glob("*.pcap")) if path.stem not in files]

    def work(_):
        return [row for name, lines in files.items() for row in check(folder / f"{name}.pcap", lines)]

    rows = labs.apart(work) + [(name, "", "FAIL", "captures.tsv says nothing of it") for name in missing]
    table.show(("capture", "expected", "", "cause"), rows, sums=2)
    return sum(row[2] == "FAIL" for row in rows)
