"""Writes the tables of the simulations: how often bounds, verdicts, gates, cuts and capacities are
right where the truth is known.

They are counted by the laboratory's own tests, which take their sizes from these variables of the
environment. `make soak` has this script's own sizes, which are for what is not set:

    PLIMSOLL_FAMILIES PLIMSOLL_ALIKE_FAMILIES PLIMSOLL_GATES PLIMSOLL_CAPACITY_SEEDS

A part is a file docs/results/simulated-PART.txt, written anew. The parts take about: coverage 10
min, errors 4 min, cuts and taken a minute each, capacity 10 min, gates, limits and knee a few
seconds.

    python bench/simulations.py
    python bench/simulations.py coverage gates
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from harness import ROOT

TESTS = {
    "limits": "test_limits.py",
    "knee": "test_knee.py",
    "cuts": "test_cut.py",
    "taken": "test_taken.py",
    "gates": "test_gate.py",
    "coverage": "test_best.py",
    "errors": "test_error_rates.py",
    "capacity": "test_capacity.py",
}
"""The file of tests that counts each part."""
SIZES = {
    "PLIMSOLL_FAMILIES": "2000",
    "PLIMSOLL_ALIKE_FAMILIES": "20000",
    "PLIMSOLL_GATES": "2000",
    "PLIMSOLL_CAPACITY_SEEDS": "300",
}
RESULTS = ROOT / "docs" / "results"


def main() -> int:
    """Write the tables that are asked for; 1 where a test fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", metavar="PART", help=f"any of {', '.join(TESTS)}; default: all")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="where (default: docs/results)")
    options = parser.parse_args()
    unknown = sorted(set(options.part) - TESTS.keys())
    if unknown:
        parser.error(f"no part is called {unknown[0]}; there are {', '.join(TESTS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for part in options.part or TESTS:
        (options.out / f"simulated-{part}.txt").unlink(missing_ok=True)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:xdist", str(ROOT / "lab" / "tests" / TESTS[part])],
            cwd=ROOT,
            env=SIZES | os.environ | {"PLIMSOLL_TABLES": str(options.out.resolve()), "PYTHONPATH": str(ROOT / "lab")},
            check=False,
        )
        failed += done.returncode != 0
        print(f"{part}: {time.monotonic() - began:.0f} s, exit code {done.returncode}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
