"""Searches live servers whose capacity is known by their construction (`bench/known_server.py`).

Each kind of server, with Poisson arrivals and even ones, under each limit of the 99th percentile.
The truth is that of queueing theory where there is one, else of an exact simulation. An answer is
*right* if it lies at most the width below the truth and at most 1 % above.

Every search is a line of docs/results/known-capacity.jsonl as soon as it has ended: started again,
the script goes on where it was stopped. The table is known-capacity.txt beside it. A search takes
about ten minutes at a width of 10 %, and 25 times as long at 2 %. Needs a machine that does nothing
else.

    python bench/known_capacity.py --list
    python bench/known_capacity.py --only 'M/D/1' --most 4
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import ROOT
from searches import Json, Log, binaries, search, table

sys.path[:0] = [str(ROOT / "lab"), str(ROOT / "lab" / "tests")]

import numpy as np  # noqa: E402 - beside the queues
import queues  # noqa: E402 - of the tests, which are no package

KINDS: dict[str, tuple[queues.Server, list[str]]] = {
    "M/M/1": (queues.Server(), []),
    "M/D/1": (queues.Server(fixed=True), ["--fixed"]),
    "four workers": (queues.Server(workers=4), ["--workers", "4"]),
    "pauses": (queues.Server(pauses=True), ["--pauses"]),
    "degrades": (queues.Server(degrades=True), ["--degrades"]),
}
LIMITS_MS = (5, 20, 50, 200, 300)
"""Beyond the pauses of 200 ms too."""
LOWEST, HIGHEST = 20, 4000
ABOVE = 0.01
THEORY: dict[tuple[str, bool], Callable[[float], float]] = {
    ("M/M/1", False): queues.m_m_1,
    ("M/M/1", True): queues.d_m_1,
    ("M/D/1", False): queues.m_d_1,
    ("four workers", False): queues.m_m_4,
}
SIMULATED_S = 2000.0
"""Of each exact simulation: two million requests, of which the p99 is known within a percent."""
STEPS = 9
"""Halvings of the range of 1 to 1,000 a second on a logarithmic scale: the last one is of 1.4 %."""
RESULT = ROOT / "docs" / "results" / "known-capacity.txt"
SUITE = """
name     = "known-capacity"
question = "Does the search find the capacity that the server has by construction?"

[server]
command = {command}
ready = "tcp:{{port}}"

[load]
protocol = "echo"
size = "64B"
connections = 256
arrivals = "{arrivals}"
duration = "1s"

[run]
repeat = 1
warm_up = "200ms"
seed = {seed}

[limits]
"response_time.p99" = "<{limit_ms}ms"

[search]
over = "load.rate"
range = [{lowest}, {highest}]
width = "{width}"
trials = 3
patience = "{patience}"
hold = "1m"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A server, the arrivals, and the limit."""

    kind: str
    """Of the server."""
    even: bool
    """Whether requests come evenly."""
    limit_ms: int
    """Of the 99th percentile."""

    @property
    def name(self) -> str:
        """In a line."""
        return f"{self.kind}, {'even' if self.even else 'Poisson'} arrivals, p99 < {self.limit_ms} ms"

    def truth(self) -> float:
        """The capacity, in requests a second; 0 where no load meets the limit."""
        theory = THEORY.get((self.kind, self.even))
        if theory is not None:
            return queues.p99_capacity(self.limit_ms / 1e3, theory)
        return simulated(KINDS[self.kind][0], self.limit_ms / 1e3, even=self.even)


CASES = {
    case.name: case
    for limit_ms in LIMITS_MS
    for kind in KINDS
    for even in (False, True)
    for case in [Case(kind=kind, even=even, limit_ms=limit_ms)]
}


def simulated(kind: queues.Server, limit_s: float, *, even: bool) -> float:
    """The capacity by bisection, each load simulated exactly."""

    def carries(load: float) -> bool:
        luck = np.random.default_rng(7)
        _, times, _ = queues.responses(kind, load, luck, window_s=SIMULATED_S, warm_up_s=100.0, even=even)
        return float(np.quantile(times, 0.99)) < limit_s

    low, high = 1.0, queues.RATE
    if not carries(low):
        return 0.0
    if carries(high * (1 - 1e-6)):
        return high
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if carries(middle) else (low, middle)
    return math.sqrt(low * high)


def suite_of(case: Case, *, width: str, patience: str, seed: int) -> str:
    """The search as a suite."""
    command = [sys.executable, str(Path(__file__).with_name("known_server.py")), "{port}", *KINDS[case.kind][1]]
    return SUITE.format(
        command=json.dumps([*command, "--seed", str(seed)]),
        arrivals="fixed" if case.even else "poisson",
        seed=seed,
        limit_ms=case.limit_ms,
        lowest=LOWEST,
        highest=HIGHEST,
        width=width,
        patience=patience,
    )


def is_right(record: Json) -> bool:
    """Whether an answer lies at most its width below the truth and at most 1 % above. Where the
    lowest load is too much, no load may be found.
    """
    truth, lower = record["truth"], record["lower"]
    if truth < LOWEST:
        return lower is None
    return lower is not None and truth * (1 - record["width"]) <= lower <= truth * (1 + ABOVE)


def render(made: Sequence[Json]) -> str:
    """The table, and how many answers are right."""
    rows = [("server", "truth", "answer", "of the truth", "precision", "limited by", "width", "seconds")]
    for each in made:
        lower, truth = each["lower"], each["truth"]
        rows.append(
            (
                each["name"],
                f"{truth:,.0f}/s",
                "none" if lower is None else f"{lower:,}/s",
                f"{lower / truth:.3f}" if lower is not None and truth else "-",
                "-" if each["precision"] is None else f"{each['precision']:.1%}",
                each["limited_by"] or "-",
                f"{each['width']:.0%}",
                f"{each['elapsed_s']:.0f}",
            )
        )
    above = sum(each["lower"] is not None and each["lower"] > each["truth"] * (1 + ABOVE) for each in made)
    right = sum(map(is_right, made))
    counts = f"{right} of {len(made)} answers are right; {above} lie more than 1 % above the truth.\n"
    return f"{table(rows)}\n{counts}{binaries(made)}"


def main() -> None:
    """Make the searches that are missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="servers whose line has this text")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="searches of each (default: 1)")
    parser.add_argument("--most", type=int, default=1000, metavar="N", help="searches to make now, at most")
    parser.add_argument("--width", type=float, default=0.1, metavar="PART", help="of each search (default: 0.1)")
    parser.add_argument("--patience", default="1h", metavar="D", help="of each search (default: 1h)")
    parser.add_argument("--list", action="store_true", help="print the servers and the truths alone")
    options = parser.parse_args()
    wanted = [name for name in CASES if options.only in name]
    if options.list:
        print(table([("server", "truth"), *((name, f"{CASES[name].truth():,.0f}/s") for name in wanted)]), end="")
        return
    log = Log(RESULT.with_suffix(".jsonl"))
    for name in log.missing(wanted, options.rounds)[: options.most]:
        seed = 1 + len(log.made)
        text = suite_of(CASES[name], width=f"{options.width:.0%}", patience=options.patience, seed=seed)
        found = search("known-capacity", text)
        log.add({"name": name, "truth": CASES[name].truth(), "width": options.width, "seed": seed} | found)
        print(f"{name}: {found['text']}", flush=True)
        RESULT.write_text(render(log.made))
    print(render(log.made), end="")


if __name__ == "__main__":
    main()
