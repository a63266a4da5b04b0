"""Forty real gates: how often each ends as it should.

How much rate and CPU a microsecond of work costs our own server is measured first, by many blocks
of a server that burns 2 us more for each reply beside one that does not. The new server of a gate
then burns as much as takes so much of the dearer of both figures, and each gate asks by itself, at
a tolerance of 5 %:

    alike  10  the same command twice               must pass
    copies 10  one binary in two directories        must pass
    half   10  a loss of 5 %                        seldom passes, and is seldom called worse
    tenth  10  a loss of 10 %                       must be found

Every gate is a line of target/bench/gates.jsonl as soon as it has ended: started again, the script
goes on where it was stopped. The table is docs/results/gates.txt. Takes about 20 minutes; no gate
takes more than 15. Needs a machine that does nothing else.

    python bench/gates.py            # all of them
    python bench/gates.py --most 5   # five more
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness import BUILD, PLIMSOLL, ROOT, lab
from searches import Json, Log, binaries, table

EACH = 10
BASE_WORK_US = 20.0
"""What both servers burn for each reply. It is four fifths of what a request costs then, and the
same in every gate: the rest differs by a fifth from one hour to the next on a machine that others
share, and a loss that was to be 5 % would be one of 4 % or of 6 %."""
DEARER_US = 2.0
"""What the new server burns more for each reply, as the costs are measured: about what takes a
tenth, as cost does not grow in a straight line."""
BLOCKS = 120
"""Blocks that the costs are measured in."""
KINDS = {"alike": 0.0, "copies": 0.0, "half": 0.05, "tenth": 0.10}
"""What the new server of a gate loses in the dearer figure, as a part of it."""
OUTCOMES = ("pass", "undecided", "worse", "failed")
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
RESULT = ROOT / "docs" / "results" / "gates.txt"


def main() -> int:
    """Make the gates that are missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=len(KINDS) * EACH, metavar="N", help="gates to make now, at most")
    parser.add_argument("--noise", default="3%", metavar="PART", help="stated noise; the blocks follow from it")
    options = parser.parse_args()
    log = Log(BUILD / "gates.jsonl")
    missing = log.missing(KINDS, EACH)[: options.most]
    costs = costs_us() if missing else {}
    for kind in missing:
        found = gate(kind, work_us(costs, KINDS[kind]), options.noise, 1 + len(log.made))
        log.add({"name": kind, "noise": options.noise} | found)
        print(f"{len(log.made):>3} {kind:<7} {found['outcome']:<10} {found['text']}", flush=True)
        RESULT.write_text(render(log.made))
    print(render(log.made), end="")
    slow = any(each["elapsed_s"] > LONGEST_S for each in log.made)
    failed = any(each["outcome"] == "failed" for each in log.made)
    return 1 if slow or failed else 0


def render(made: Sequence[Json]) -> str:
    """How the gates of each kind ended, and which losses they saw."""
    figures = sorted({loss["figure"] for each in made for loss in each["losses"]})
    rows = [("kind", "made loss", *OUTCOMES, "as it should", *(f"loss of {figure}" for figure in figures))]
    for kind, lost in KINDS.items():
        of_kind = [each for each in made if each["name"] == kind]
        if not of_kind:
            continue
        ends = Counter(each["outcome"] for each in of_kind)
        counts = [str(ends[outcome]) for outcome in OUTCOMES]
        losses = [loss for each in of_kind for loss in each["losses"]]
        seen = [spread([each["loss"] for each in losses if each["figure"] == figure]) for figure in figures]
        rows.append((kind, f"{lost:.0%}", *counts, f"{ends[RIGHT[kind]]} of {ends.total()}", *seen))
    stated = ", ".join(sorted({each["noise"] for each in made}))
    blocks = sorted({loss["blocks"] for each in made for loss in each["losses"]})
    took = f"The longest took {max((each['elapsed_s'] for each in made), default=0.0):.0f} s."
    design = f"Tolerance 5 %, stated noise {stated}: {' or '.join(map(str, blocks))} blocks. {took}\n"
    return f"{table(rows)}\n{design}{binaries(made)}"


def spread(losses: Sequence[float | None]) -> str:
    """The middle one of the losses that were estimated, and the ends."""
    told = [each for each in losses if each is not None]
    return f"{statistics.median(told):.1%} ({min(told):.1%} to {max(told):.1%})" if told else "-"


def gate(kind: str, more_us: float, noise: str, seed: int) -> Json:
    """One gate by itself: its outcome, its evidence, and how long it took."""
    base, new = PLIMSOLL, PLIMSOLL
    if kind == "copies":
        base, new = (copied(BUILD / "gates" / name) for name in ("old", "new"))
    began = time.monotonic()
    found, exit_code = asked(base, new, more_us, "--noise", noise, "--seed", str(seed))
    return {
        "more_us": more_us,
        "outcome": found["outcome"],
        "exit_code": exit_code,
        "elapsed_s": time.monotonic() - began,
        "text": found["text"],
        "losses": found["losses"],
    }


def asked(base: str, new: str, more_us: float, *flags: str) -> tuple[Json, int]:
    """What a gate says of two binaries, of which the new one burns so much more for each reply, and
    its exit code.
    """
    suite = BUILD / "gates.toml"
    suite.write_text(SUITE)
    serve = "serve echo --listen 127.0.0.1:{port} --workers 1 --work"
    commands = [
        f"{shlex.quote(binary)} {serve} {work_us:.2f}us"
        for binary, work_us in ((base, BASE_WORK_US), (new, BASE_WORK_US + more_us))
    ]
    done = lab(
        "gate", str(suite), "--base", commands[0], "--new", commands[1], *flags, "--out", str(BUILD / "gate-runs")
    )
    shutil.rmtree(BUILD / "gate-runs", ignore_errors=True)
    if not done.stdout:
        sys.exit(f"the gate failed: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])["gate"], done.returncode


def copied(folder: Path) -> str:
    """The binary in a directory of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(PLIMSOLL, folder / "plimsoll")
    return str(folder / "plimsoll")


def costs_us() -> dict[str, float]:
    """What a request costs the server by each figure: so much work would take half of a rate, and
    double a cost.
    """
    found, _ = asked(PLIMSOLL, PLIMSOLL, DEARER_US, "--repeat", str(BLOCKS), "--seed", "1")
    if not found["losses"] or any(not each["loss"] or each["loss"] <= 0 for each in found["losses"]):
        sys.exit(f"what {DEARER_US:g} us of work cost was not seen: {found['text']}")
    costs = {
        each["figure"]: DEARER_US / (each["loss"] / (1 - each["loss"]) if is_rate(each["figure"]) else each["loss"])
        for each in found["losses"]
    }
    for figure, cost_us in costs.items():
        print(f"a request costs {cost_us:.2f} us by {figure}", flush=True)
    return costs


def work_us(costs: dict[str, float], loss: float) -> float:
    """The work that takes so much of the dearer figure, and less of the others."""
    return min(cost * (loss / (1 - loss) if is_rate(figure) else loss) for figure, cost in costs.items())


def is_rate(figure: str) -> bool:
    """Whether work takes a part of the figure; it adds to the others."""
    return figure.endswith("_rate")


if __name__ == "__main__":
    sys.exit(main())
