"""Records of generators whose costs are known, and their machine."""

from __future__ import annotations

from typing import Any, cast

from made_records import run_record

from plimsoll_lab.store.records import TrialRecord

HOST = {"memory": "8388608 kB", "ip_local_port_range": "32768 60999"}
RUN = run_record()
RUN = RUN.model_copy(update={"environment": RUN.environment.model_copy(update=HOST | {"cpus": 4})})


def summary(
    rate: float, cpu_us: float | None, bytes_each: int = 904, *, intended_rate: float | None = None
) -> dict[str, Any]:
    return {
        "completed_rate": rate,
        "intended_rate": intended_rate,
        "requests": {"scheduled": int(10 * (intended_rate or rate)), "completed": int(10 * rate)},
        "generator": {"cpu_us_per_request": cpu_us},
        "connections": {"bytes_each": bytes_each},
    }


def trial(number: int, point: int, *summaries: dict[str, Any] | None, outcome: str = "ok") -> TrialRecord:
    load: dict[str, Any] = {"summary": summaries[0]}
    if len(summaries) > 1:
        load["generators"] = [{"host": f"h{n}", "summary": each} for n, each in enumerate(summaries, start=2)]
    record = {
        "number": number, "block": 1, "point": point, "setting": {}, "outcome": outcome, "reason": None, "warnings": (),
        "figures": {}, "started_unix_s": 0.0, "elapsed_s": 1.0, "server": {}, "load": load, "machine": {},
    }  # fmt: skip
    return TrialRecord(**cast("Any", record))
