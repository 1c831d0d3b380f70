"""Skydive's source and programs, where the user of this script has built them."""

import dataclasses
import os
import pathlib
import sys


@dataclasses.dataclass
class Skydive:
    """What was given."""

    source: pathlib.Path
    client: pathlib.Path
    tests: pathlib.Path


def given():
    """Paths from the environment."""
    paths = []
    for variable in ("SKYDIVE_SOURCE", "SKYDIVE_CLIENT", "SKYDIVE_TESTS"):
        path = pathlib.Path(os.environ.get(variable) or sys.exit(f"skydive: set {variable}; --help says to what"))
        if not path.exists():
            sys.exit(f"skydive: {variable}: there is no {path}")
        paths.append(path.resolve())
    return Skydive(*paths)
