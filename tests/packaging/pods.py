"""What pods of the manifests may and what they see: what a schema allows and nobody wants is found here."""

import re
import sys
from pathlib import Path

import yaml

KINDS = {"DaemonSet", "Deployment", "StatefulSet"}
# What an agent sees of its node (docs/install.md, "Mounts"), by path in the container; and how.
NODE = {"/sys/fs/cgroup": None, "/run/netns": "HostToContainer", "/run/containerd": None}


def fail(text):
    sys.exit(f"packaging: {text}")


def same(what, is_, wanted):
    if is_ != wanted:
        fail(f"{what}: {is_}, not {wanted}")


def confined(name, spec, container):
    """Only what is said, and nothing of the node but for agents."""
    agent = name == "skua-agent"
    for key in ["hostNetwork", "hostPID"]:
        same(f"{name}: {key}", spec.get(key, False), agent)
    same(f"{name}: hostIPC", spec.get("hostIPC", False), False)
    same(f"{name}: token of a service account", spec.get("automountServiceAccountToken"), False)
    # A container's say goes before its pod's.
    security = spec.get("securityContext", {}) | container["securityContext"]
    same(f"{name}: privileged", security.get("privileged", False), False)
    same(f"{name}: allowPrivilegeEscalation", security.get("allowPrivilegeEscalation"), False)
    same(f"{name}: readOnlyRootFilesystem", security.get("readOnlyRootFilesystem"), True)
    same(f"{name}: capabilities dropped", security["capabilities"]["drop"], ["ALL"])
    same(f"{name}: seccomp", security["seccompProfile"]["type"], "RuntimeDefault")
    if not agent:
        same(f"{name}: runAsNonRoot", security.get("runAsNonRoot"), True)
        same(f"{name}: capabilities", security["capabilities"].get("add", []), [])
    if "memory" not in container["resources"]["limits"]:
        fail(f"{name} has no limit of memory")


def mounts(name, spec, container, generated):
    """Each volume is mounted, each of a secret or a configuration is made, and agents see what they need."""
    volumes = {one["name"]: one for one in spec.get("volumes", [])}
    mounted = container.get("volumeMounts", [])
    same(f"{name}: volumes", sorted({one["name"] for one in mounted}), sorted(volumes))
    for one in volumes.values():
        for kind, key in [("configMap", "name"), ("secret", "secretName")]:
            if kind in one and (kind, one[kind][key]) not in generated:
                fail(f"{name}: nobody makes {kind} {one[kind][key]}")
    node = {one["mountPath"]: one for one in mounted if "hostPath" in volumes[one["name"]]}
    same(f"{name}: paths of the node", sorted(node), sorted(NODE) if name == "skua-agent" else [])
    for path, one in node.items():
        same(f"{name}: {path} of the node", volumes[one["name"]]["hostPath"]["path"], path)
        same(f"{name}: {path} for reading", one.get("readOnly"), True)
        same(f"{name}: {path}, later mounts", one.get("mountPropagation"), NODE[path])
    # Files that arguments name are in a volume.
    paths = [one["mountPath"] for one in mounted]
    for path in re.findall(r"=(/\S+)", "\n".join(container["args"])):
        if not any(path.startswith(mount) for mount in paths):
            fail(f"{name}: nothing is mounted at {path}")


def selected(found):
    """Selectors find pods, and Services ports by their names."""
    pods = {}
    for (kind, name), one in found.items():
        if kind in KINDS:
            template = one["spec"]["template"]
            labels = template["metadata"]["labels"]
            same(f"{name}: selector", one["spec"]["selector"]["matchLabels"], labels)
            pods[name] = labels, {port["name"] for port in template["spec"]["containers"][0].get("ports", [])}
    for (kind, name), one in found.items():
        spec = one.get("spec", {})
        if kind == "Service":
            selector, ports = dict(spec["selector"]), {port["targetPort"] for port in spec["ports"]}
            # Of one pod of a set.
            selector.pop("statefulset.kubernetes.io/pod-name", None)
        elif kind == "NetworkPolicy":
            selector = spec["podSelector"]["matchLabels"]
            ports = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
        else:
            continue
        if not any(selector.items() <= labels.items() and ports <= there for labels, there in pods.values()):
            fail(f"{kind} {name} finds no pod with ports {sorted(ports)}")


def check(found, folder):
    """`found`: all objects of the manifests in the folder, by kind and name."""
    customs = yaml.safe_load((folder / "kustomization.yaml").read_text())
    generated = {("secret", one["name"]) for one in customs["secretGenerator"]}
    for one in customs["configMapGenerator"]:
        generated.add(("configMap", one["name"]))
        for file in one["files"]:
            if not (folder / file.split("=")[-1]).exists():
                fail(f"there is no {file}")
    listed = set(customs["resources"]) | {"kustomization.yaml", "agent-config.yaml", "analyzer-config.yaml"}
    same("files of the kustomization", sorted(listed), sorted(path.name for path in Path(folder).glob("*.yaml")))
    images = {one["name"] for one in customs["images"]}
    for (kind, name), one in found.items():
        if kind in KINDS:
            spec = one["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            if container["image"] not in images:
                fail(f"{name}: nobody says where the image {container['image']} is")
            confined(name, spec, container)
            mounts(name, spec, container, generated)
    selected(found)
