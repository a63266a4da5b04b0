"""What scripts share that measure for hours: a log that lets a script go on where it was stopped,
a search by a suite, and a table of what was found.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from harness import BUILD, PLIMSOLL, lab

Json = dict[str, Any]
OUT = BUILD / "search-runs"


class Log:
    """What was measured until now and by which binary, a line of JSON each; begin anew without the
    file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.made: list[Json] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def missing(self, names: Iterable[str], rounds: int, counts: Callable[[Json], bool] = bool) -> list[str]:
        """What is still to be measured, in turn: a script that is stopped has as many of each. Only
        those count of which that is true.
        """
        made = Counter(each["name"] for each in self.made if counts(each))
        wanted = list(names)
        return [name for number in range(rounds) for name in wanted if made[name] <= number]

    def add(self, record: Json) -> None:
        """Keep a measurement."""
        record |= {"binary": binary()}
        self.made.append(record)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as lines:
            lines.write(json.dumps(record) + "\n")


def binary() -> str:
    """The version of the binary that is measured, with its commit."""
    version = subprocess.run([PLIMSOLL, "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    return version.strip()


def binaries(made: Iterable[Json]) -> str:
    """The binaries that measured, for the foot of a table."""
    return f"Measured by {', '.join(sorted({each['binary'] for each in made}))}.\n"


def run(name: str, text: str) -> Json:
    """The summary of a suite's run, whose folder is removed, with what the generator itself said in
    each trial (`generators`).
    """
    suite = BUILD / f"{name}.toml"
    suite.parent.mkdir(parents=True, exist_ok=True)
    suite.write_text(text)
    done = lab("run", str(suite), "--out", str(OUT))
    trials = [json.loads(each.read_text()) for each in sorted(OUT.glob("*/trials/*.json"))]
    shutil.rmtree(OUT, ignore_errors=True)
    if not done.stdout:
        sys.exit(f"{name} could not be run: {done.stderr}")
    found: Json = json.loads(done.stdout.splitlines()[-1])
    if found["status"] != "complete":
        sys.exit(f"{name} is {found['status']}, and is not kept: {done.stderr}")
    return found | {"generators": [each["load"].get("summary") for each in trials]}


def search(name: str, text: str) -> Json:
    """What a suite's one search found, and how long it took."""
    began = time.monotonic()
    (capacity,) = run(name, text)["capacities"]
    keys = ("lower", "upper", "finished", "failed", "held_s", "precision", "limited_by", "first_break", "text")
    return {key: capacity[key] for key in keys} | {"elapsed_s": time.monotonic() - began}


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns, the first one to the left and the others to the right; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"
