"""Trials of one search, and the machine that they were made on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from made_records import ENVIRONMENT

from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.suite.read import read_text

SUITE = read_text(
    """
name = "it"
question = "Well?"
[server]
[load]
duration = "1s"
[limits]
"response_time.p99" = "<50ms"
[search]
over = "load.rate"
range = [1, 1000]
""",
    source="it.toml",
    directory="/here",
)
GOOD = TrialRecord(
    number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), started_unix_s=0, elapsed_s=1,
    figures={
        "completed_rate": 1000.0, "response_time_us.mean": 10_000.0, "response_time_us.p99": 40_000.0,
        "server.cpu_cores": 0.97,
    },
    server={"summary": {"errors": {}}},
    load={"summary": {"requests": {"scheduled": 1000, "failed": 0, "timed_out": 0, "unsent": 0}, "errors": {}}},
    machine={"busy_cores": 0.9},
)  # fmt: skip
MACHINE = ENVIRONMENT.model_copy(update={"memory": "1000000 kB"})
BAD = replace(GOOD, figures={**GOOD.figures, "response_time_us.p99": 80_000.0})


def figures(**changed: float) -> Mapping[str, float]:
    """Those of `BAD` with some changed, by name with `__` for a dot."""
    return {**BAD.figures, **{name.replace("__", "."): value for name, value in changed.items()}}
