"""Manifests of Kubernetes: they are what its schemas say, their configurations are read by the program, the
rights in them are those of the units, and routes that are probed are there."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

import pods

FOLDER = Path("deploy/kubernetes")
# Of the oldest version that the manifests are for, and a later one.
VERSIONS = ["1.30", "1.37"]
SECRETS = ["server.crt", "server.key", "tokens", "ca.crt", "agent.token"]


def fail(text):
    sys.exit(f"packaging: {text}")


def untested(key, text):
    subprocess.run(["tests/untested", key, text], check=True)


def documents():
    """All objects in the folder, by kind and name."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if "kind" in document and document["kind"] != "Kustomization":
                found[document["kind"], document["metadata"]["name"]] = document
    return found


def schemas(work):
    """The result of kustomize against the schemas, where both are to be had."""
    if not shutil.which("kubectl"):
        return untested("kubectl", "what kustomize makes of the manifests: kubectl is not here")
    folder = work / "kubernetes"
    shutil.copytree(FOLDER, folder)
    for name in SECRETS:
        (folder / name).write_text("x")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
    if done.returncode:
        fail(f"kustomize: {done.stderr}")
    if importlib.util.find_spec("kubernetes_validate") is None:
        return untested("kubernetes-validate", "schemas of Kubernetes")
    import kubernetes_validate

    objects = list(yaml.safe_load_all(done.stdout))
    if len(objects) < 10:
        fail(f"kustomize makes only {len(objects)} objects")
    for version in VERSIONS:
        for one in objects:
            try:
                kubernetes_validate.validate(one, version, strict=True)
            except Exception as error:
                fail(f"{one['kind']} {one['metadata']['name']}, Kubernetes {version}: {error}")


def configurations():
    skua = os.environ["SKUA"]
    for name in ["agent-config.yaml", "analyzer-config.yaml"]:
        command = [skua, "config", "--config", FOLDER / name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            fail(f"{name}: {done.stderr}")


def pod(found, kind, name):
    spec = found[kind, name]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def arguments(found):
    """Those of containers are understood."""
    skua = os.environ["SKUA"]
    for kind, name in [("DaemonSet", "skua-agent"), ("Deployment", "skua-analyzer"), ("StatefulSet", "skua-collector")]:
        given = pod(found, kind, name)[1]["args"]
        done = subprocess.run([skua, *given, "--help"], capture_output=True, text=True)
        if done.returncode:
            fail(f"{name}: {done.stderr}")
        options = [text.split("=")[0] for text in given if text.startswith("--")]
        for option in options:
            if not re.search(rf"^ +(-., )?{option}\b", done.stdout, re.M):
                fail(f"{name}: skua {given[0]} has no {option}")


def rights(found):
    unit = Path("packaging/skua-agent.service").read_text()
    (given,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.M)
    security = pod(found, "DaemonSet", "skua-agent")[1]["securityContext"]["capabilities"]
    wanted = {f"CAP_{name}" for name in security["add"]}
    if wanted != set(given.split()) or security["drop"] != ["ALL"]:
        fail(f"rights of agents: {given} as a unit, {security} in Kubernetes")
    text = Path("crates/app/watch/src/rights.rs").read_text()
    known = set(re.findall(r'name: "(CAP_\w+)"', text))
    if wanted != known:
        fail(f"the program knows of {known}, its agents get {wanted}")


def probes(found):
    sources = Path("crates/app").glob("*/src/**/*.rs")
    described = set(re.findall(r'utoipa::path\(get, path = "([^"]+)"', "".join(p.read_text() for p in sources)))
    count = 0
    for one in found.values():
        for path in re.findall(r"'httpGet': \{[^}]*'path': '([^']+)'", str(one)):
            count += 1
            if path not in described:
                fail(f"{path} is probed, and no route")
    if count < 5:
        fail(f"only {count} probes found")


def collectors(found):
    """What agents are told of is a Service with that port, whose name means all pods."""
    config = yaml.safe_load((FOLDER / "agent-config.yaml").read_text())
    pods = found["StatefulSet", "skua-collector"]["spec"]
    for one in config["export"]["collectors"]:
        name, port = one.split(".")[0], int(one.rsplit(":")[-1])
        service = found["Service", name]["spec"]
        if [p["port"] for p in service["ports"]] != [port]:
            fail(f"{one}: the Service has other ports")
        if service["clusterIP"] != "None" or pods["serviceName"] != name:
            fail(f"{one} does not mean the addresses of pods")
        if service["selector"] != pods["selector"]["matchLabels"]:
            fail(f"{one} selects other pods")


found = documents()
schemas(Path(sys.argv[1]))
configurations()
arguments(found)
rights(found)
probes(found)
collectors(found)
pods.check(found, FOLDER)
