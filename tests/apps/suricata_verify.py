"""Checks of suricata-verify: how many EVE lines of a test's capture match a filter."""

import re

import yaml

from replayed import Result, events

# Events that Skua writes, and their fields: those of every line, and others by a pattern.
COMMON = {"event_type", "src_ip", "src_port", "dest_ip", "dest_port", "proto", "pcap_cnt"}
CLAIMED = {
    "dns": r"dns\.(version|type|id|flags|qr|aa|tc|rd|ra|z|opcode|rcode|(queries|answers|authorities|additionals|grouped)\b.*)",
    "mdns": r"mdns\.(?!tx_id)[a-z_]+.*",
    "tls": r"tls\.(sni|client_alpns|ja4)(\[\d+\])?",
}
# Whose version is matched; only DNS records of version 3 are written, which came with 8.
VERSION = (8, 0, 0)
# What a test may add to Suricata's command line without changing which lines of these events there are.
HARMLESS = re.compile(r"-k none|--runmode[= ]\S+|--set +(stream|defrag|flow|detect|app-layer.protocols.tls.ja)\S*")
OPERATORS = {
    "__gt": lambda a, b: a > b,
    "__gte": lambda a, b: a >= b,
    "__lt": lambda a, b: a < b,
    "__lte": lambda a, b: a <= b,
    "__contains": lambda a, b: b in a,
    "__find": lambda a, b: b in a,
    "__startswith": lambda a, b: a.startswith(b),
    "__endswith": lambda a, b: a.endswith(b),
}


def version(text):
    """A version as numbers, as many as VERSION has."""
    numbers = [int(n) for n in re.findall(r"\d+", str(text))[:3]]
    return tuple(numbers + [0] * (3 - len(numbers)))


def not_of_version(requires):
    """Whether this is for other versions only."""
    return (
        version(requires.get("min-version", 0)) > VERSION
        or ("lt-version" in requires and version(requires["lt-version"]) <= VERSION)
        or ("version" in requires and version(requires["version"])[:1] != VERSION[:1])
    )


def value(event, path):
    """What stands at a path such as dns.answers[0].rdata; None when nothing does."""
    found = event
    for part in path.split("."):
        if part in OPERATORS:
            break
        if part == "__len":
            found = len(found) if found is not None else None
            continue
        name, *places = re.split(r"[\[\]]+", part.rstrip("]"))
        found = found.get(name) if isinstance(found, dict) else None
        for place in places:
            found = found[int(place)] if isinstance(found, list) and int(place) < len(found) else None
    return found


def matches(event, match):
    """Whether a line has all that a filter wants."""
    for key, wanted in match.items():
        if key in ("has-key", "not-has-key"):
            paths = wanted if isinstance(wanted, list) else [wanted]
            if any((value(event, path) is not None) != (key == "has-key") for path in paths):
                return False
            continue
        found = value(event, key)
        operator = OPERATORS.get(key.rsplit(".", 1)[-1])
        if not operator:
            if found != wanted:
                return False
            continue
        try:
            if found is None or not operator(found, wanted):
                return False
        except (TypeError, AttributeError):
            return False
    return True


def fields(match):
    """All paths of a filter."""
    for key, wanted in match.items():
        if key in ("has-key", "not-has-key"):
            yield from wanted if isinstance(wanted, list) else [wanted]
        elif key not in COMMON:
            yield key


def not_claimed(test, directory, check):
    """Why a check is not claimed, or nothing."""
    match = check["match"]
    kind = match["event_type"]
    if not_of_version(test.get("requires") or {}) or not_of_version(check.get("requires") or {}):
        return "other versions"
    if "env" in test or (test.get("requires") or {}).get("env"):
        return "another version of the records"
    rest = HARMLESS.sub("", " ".join(str(a) for a in test.get("args") or [])).strip()
    if rest:
        return "arguments of Suricata"
    if match.get("dns.type") in ("query", "answer"):
        return "another version of the records"
    if test.get("pcap") is False or "command" in test:
        return "no capture"
    if "filename" in check:
        return "another file of Suricata"
    for field in fields(match):
        if not re.fullmatch(CLAIMED[kind], field):
            return "field " + re.sub(r"\[\d+\]", "", field)
    return ""


def capture_of(test, directory):
    """The test's capture file; None when there is not exactly one."""
    named = test.get("pcap")
    if named:
        path = (directory / named).resolve()
        return path if path.exists() else None
    found = [path for path in directory.iterdir() if path.suffix in (".pcap", ".pcapng", ".cap")]
    return found[0] if len(found) == 1 else None


def results(skua, checkout):
    """The result of each check of these events."""
    for path in sorted((checkout / "tests").rglob("test.yaml")):
        directory = path.parent
        try:
            test = yaml.safe_load(path.read_bytes()) or {}
        except yaml.YAMLError:
            continue
        capture = None
        for number, check in enumerate(test.get("checks") or [], 1):
            check = check.get("filter") if isinstance(check, dict) else None
            kind = ((check or {}).get("match") or {}).get("event_type")
            if kind not in CLAIMED:
                continue
            result = Result(f"{directory.relative_to(checkout / 'tests')} {number}", kind)
            result.skipped = not_claimed(test, directory, check)
            if not result.skipped:
                capture = capture or capture_of(test, directory)
                if not capture:
                    result.skipped = "the capture is not there"
            if not result.skipped:
                try:
                    count = sum(matches(event, check["match"]) for event in events(skua, capture))
                    result.passed = count == check["count"]
                    result.why = f"{count} lines instead of {check['count']}"
                except ValueError as refused:
                    result.why = str(refused)
            yield result
