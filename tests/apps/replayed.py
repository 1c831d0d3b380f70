"""The EVE lines that `skua replay` writes of a capture file, and the result of one check."""

import dataclasses
import functools
import json
import subprocess

PATIENCE = 120


@dataclasses.dataclass
class Result:
    """Of one check; `skipped` and `why` say why it is not claimed, and what was found instead."""

    check: str
    kind: str
    passed: bool = False
    skipped: str = ""
    why: str = ""


@functools.lru_cache(maxsize=8)
def events(skua, capture):
    """All lines; raises when the program refuses the file."""
    command = [skua, "replay", capture, "--output", "eve"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if ran.returncode:
        raise ValueError(ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else f"status {ran.returncode}")
    return [json.loads(line) for line in ran.stdout.splitlines()]
