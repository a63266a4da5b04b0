"""Forty real gates: how often each ends as it should.

What a request costs our own server is measured first. The new server of a gate then burns nothing,
a twentieth or a tenth of it more for each reply, and each gate asks by itself, at a tolerance of
5 %:

    alike 10 the same command twice must pass
    copies 10 one binary in two directories must pass
    half 10 a loss of about 5 % seldom passes, and is seldom called worse
    tenth 10 a loss of about 10 % must be found

Every gate is one line of target/bench/gates.jsonl as soon as it has ended: started again, the
script goes on where it was stopped (remove the file to begin anew). The table is written to
target/bench/gates.json. Takes about half an hour; no gate takes more than 15 minutes.

    python bench/gates.py            # all of them
    python bench/gates.py --most 5   # five more
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from harness import BUILD, PLIMSOLL, lab

EACH = 10
BASE_WORK_US = 1.0
"""What both servers burn for each reply, as burning anything at all costs more than nothing."""
KINDS = {"alike": 0.0, "copies": 0.0, "half": 0.05, "tenth": 0.10}
"""What the new server burns for each reply, as a part of what a request costs."""
RIGHT = {"alike": "pass", "copies": "pass", "half": "undecided", "tenth": "worse"}
SUITE = """
name     = "gates"
question = "Is the new server slower?"

[server]

[load]
connections = 64
duration = "500ms"

[run]
warm_up = "200ms"
"""
LONGEST_S = 900.0
"""Of one gate."""


def main() -> int:
    """Make the gates that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=len(KINDS) * EACH, metavar="N", help="gates to make now, at most")
    parser.add_argument("--noise", default="3%", metavar="PART", help="stated noise; the blocks follow from it")
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    log = BUILD / "gates.jsonl"
    made = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    counts = Counter(each["kind"] for each in made)
    # In turn, so that a run that is stopped has as many of each.
    missing = [kind for number in range(EACH) for kind in KINDS if counts[kind] <= number][: options.most]
    cost_us = cost_of_a_request_us() if missing else None
    for kind in missing:
        each = gate(kind, cost_us or 0.0, options.noise, 1 + len(made))
        made.append(each)
        with log.open("a") as lines:
            lines.write(json.dumps(each) + "\n")
        print(f"{len(made):>3} {kind:<7} {each['outcome']:<10} {each['elapsed_s']:5.0f} s  {each['text']}", flush=True)
    table = {kind: Counter(each["outcome"] for each in made if each["kind"] == kind) for kind in KINDS}
    for kind, ends in table.items():
        print(f"{kind:<7} {dict(ends)}, {ends[RIGHT[kind]]} of {ends.total()} as they should")
    (BUILD / "gates.json").write_text(json.dumps({"table": table, "gates": made}, indent=1) + "\n")
    slow = [each for each in made if each["elapsed_s"] > LONGEST_S]
    failed = [each for each in made if each["outcome"] == "failed"]
    return 1 if slow or failed else 0


def gate(kind: str, cost_us: float, noise: str, seed: int) -> dict[str, Any]:
    """One gate by itself: its outcome, its evidence, and how long it took."""
    work = f"{BASE_WORK_US + KINDS[kind] * cost_us:.2f}us"
    base, new = PLIMSOLL, PLIMSOLL
    if kind == "copies":
        base, new = (copied(BUILD / "gates" / name) for name in ("old", "new"))
    suite = BUILD / "gates.toml"
    suite.write_text(SUITE)
    serve = "serve echo --listen 127.0.0.1:{port} --workers 1 --work"
    commands = [f"{shlex.quote(base)} {serve} {BASE_WORK_US:.2f}us", f"{shlex.quote(new)} {serve} {work}"]
    began = time.monotonic()
    done = lab(
        "gate", str(suite), "--base", commands[0], "--new", commands[1], "--noise", noise, "--seed", str(seed),
        "--out", str(BUILD / "gate-runs"),
    )  # fmt: skip
    elapsed_s = time.monotonic() - began
    if not done.stdout:
        sys.exit(f"the gate failed: {done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])["gate"]
    keys = ("figure", "blocks", "loss", "at_least", "at_most")
    shutil.rmtree(BUILD / "gate-runs", ignore_errors=True)
    return {
        "kind": kind,
        "work": work,
        "outcome": found["outcome"],
        "exit_code": done.returncode,
        "elapsed_s": elapsed_s,
        "text": found["text"],
        "losses": [{key: each[key] for key in keys} for each in found["losses"]],
    }


def copied(folder: Path) -> str:
    """The binary in a directory of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(PLIMSOLL, folder / "plimsoll")
    return str(folder / "plimsoll")


def cost_of_a_request_us() -> float:
    """CPU of the server for one request, the median of a few trials."""
    suite = BUILD / "gates.toml"
    suite.write_text(
        SUITE.replace("[server]", f'[server]\nworkers = 1\nwork = "{BASE_WORK_US:.2f}us"') + "repeat = 5\n"
    )
    done = lab("run", str(suite), "--out", str(BUILD / "gate-runs"))
    if not done.stdout:
        sys.exit(f"the cost of a request was not measured: {done.stderr}")
    (point,) = json.loads(done.stdout.splitlines()[-1])["points"]
    return float(point["figures"]["server.cpu_us_per_request"]["median"])


if __name__ == "__main__":
    sys.exit(main())
