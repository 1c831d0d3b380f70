"""Every metric in the dashboard and in the alerts is served by the program, with the labels that are used there.
Runs `skua run` and `skua agent` in a network namespace of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

WORK = Path(sys.argv[1])
SKUA = os.environ["SKUA"]
NAMESPACE = f"pack{os.getpid()}"
DASHBOARD = Path("deploy/grafana/skua.json")
METRICS = Path("docs/metrics.md")
RULES = Path("deploy/prometheus/skua.rules.yaml")
# Set by Prometheus itself.
GIVEN = {"instance", "job"}


def fail(text):
    sys.exit(f"packaging: {text}")


def get(url):
    # Not through a proxy: it is not in that namespace.
    script = (
        "import sys, urllib.request as r\n"
        "o = r.build_opener(r.ProxyHandler({}))\n"
        "sys.stdout.write(o.open(sys.argv[1], timeout=10).read().decode())"
    )
    command = ["ip", "netns", "exec", NAMESPACE, sys.executable, "-c", script, url]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def wait(what, look, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.2)
    fail(f"{what} did not come in {seconds} s")


def served():
    """Names of metrics with the names of their labels."""
    # Not those of this machine, where another may run.
    environment = {**os.environ, "SKUA_CONFIG": "/dev/null", "SKUA_HISTORY_DIRECTORY": str(WORK / "history"),
                   "SKUA_API_SOCKET": str(WORK / "run.sock"), "SKUA_AGENT_SOCKET": "",
                   "SKUA_ANALYZER": f"unix:{WORK / 'run.sock'}"}
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    started = []
    try:
        subprocess.run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"], check=True)
        there = ["ip", "netns", "exec", NAMESPACE, SKUA]
        to = ["--interface", "lo", "--max-entries", "1000", "--collector", "127.0.0.1:6343"]
        logs = [open(WORK / name, "w+") for name in ["run.log", "agent.log"]]
        run = ["run", "--host-name", "center", *to]
        started.append(subprocess.Popen([*there, *run], env=environment, stdout=logs[0], stderr=logs[0]))
        # An agent has no history of its own.
        environment["SKUA_HISTORY_DIRECTORY"] = ""
        agent = ["agent", "--host-name", "far", *to]
        started.append(subprocess.Popen([*there, *agent], env=environment, stdout=logs[1], stderr=logs[1]))
        for port in [8082, 8081]:
            health = wait(f"/health of port {port}", lambda: get(f"http://127.0.0.1:{port}/health"))
            if json.loads(health) != {"status": "ok"}:
                fail(f"/health: {health}")
        # Labels of a host are there when its agent has come.
        text = wait("the agent", lambda: (t := get("http://127.0.0.1:8082/metrics")) and 'host="far"' in t and t)
        text += get("http://127.0.0.1:8081/metrics") or fail("the agent has no metrics")
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)
        subprocess.run(["ip", "netns", "delete", NAMESPACE], check=True)
    types = re.findall(r"^# TYPE (\S+) (\S+)", text, re.M)
    names = {name + ("_total" if kind == "counter" else ""): set() for name, kind in types}
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", text, re.M):
        names[name] |= set(re.findall(r'(\w+)="', labels))
    # Services have series when they have been called for a while; the page is written from the same definitions.
    for name, labels in re.findall(r"^\| `(skua_\w+)` \|[^|]*\|[^|]*\|([^|]*)\|", METRICS.read_text(), re.M):
        if name in names and not names[name]:
            names[name] |= set(re.findall(r"`(\w+)`", labels))
    return names


def expressions():
    """Those of the dashboard and of the alerts, with where they stand, and the labels that their texts name."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
    for variable in dashboard["templating"]["list"]:
        if "definition" in variable:
            yield variable["name"], re.sub(r", (\w+)\)$", r"{\1=~''})", variable["definition"]), []
    import yaml

    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            texts = str(rule["annotations"])
            yield rule["alert"], rule["expr"], re.findall(r"\$labels\.(\w+)", texts)


def check(names):
    count = 0
    for where, expression, told in expressions():
        used = re.findall(r"\b(skua_\w+)(?:\{([^}]*)\})?", expression)
        if not used:
            fail(f"{where}: no metric in {expression}")
        by = re.findall(r"\bby \(([^)]*)\)", expression)
        grouped = {label.strip() for labels in by for label in labels.split(",")}
        # What a sum does not keep, texts cannot name.
        if by and not set(told) <= grouped:
            fail(f"{where}: {set(told) - grouped} are summed up in {expression}")
        for name, matchers in used:
            count += 1
            if name not in names:
                fail(f"{where}: {name} is served by nobody")
            wanted = set(re.findall(r"(\w+)[=!]~?[\"']", matchers)) | grouped | set(told)
            if missing := wanted - names[name] - GIVEN:
                fail(f"{where}: {name} has no label {missing}")
    if count < 30:
        fail(f"only {count} metrics found in dashboard and alerts")


def grid():
    """Panels do not lie on each other, and have numbers of their own."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    if len({panel["id"] for panel in panels}) != len(panels):
        fail("two panels of the dashboard have one number")
    taken = set()
    for panel in panels:
        p = panel["gridPos"]
        cells = {(x, y) for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])}
        if cells & taken or p["x"] + p["w"] > 24:
            fail(f"panel {panel['title']} lies on another")
        taken |= cells


grid()
if promtool := shutil.which("promtool"):
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True)
    if done.returncode:
        fail(f"promtool: {done.stdout}{done.stderr}")
else:
    text = "the syntax of the alerts' expressions: promtool is not here"
    subprocess.run(["tests/untested", "promtool", text], check=True)
check(served())
