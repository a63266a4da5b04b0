"""A capacity search as a run: every trial on disk, the answer one sentence, one table and one page."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import asdict, replace
from typing import cast

from plimsoll_lab.capacity_question import Question
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.report import words
from plimsoll_lab.report.summary import COMPARE
from plimsoll_lab.run import SUSPECT, Request, begin
from plimsoll_lab.stats.capacity import Bounds, SearchTooLong, search
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import SCHEMA_VERSION, Json, TrialRecord
from plimsoll_lab.suite.figures import BY_NAME
from plimsoll_lab.suite.spec import Axis, Limit, Plan, PlannedTrial, Point, RunSettings, Settings, Suite
from plimsoll_lab.trial.lifecycle import run_trial

NEAR_CEILING = 0.8
"""Above this part of what the generator gets from a null server, it cannot be told from the server."""
LOST_TOLERATED = 0.01
"""Open loop: the part of the requests due that may be failed, late beyond their time-out, or never sent."""
LEAST_LOST, MOST_LOST = 0.01, 0.9
"""A missed limit is at least a loss, and leaves MLRsearch something to estimate from."""
CEILING_CONNECTIONS = 64


class _Search:
    """The measuring side of a search: a trial for each call, on disk before the next."""

    def __init__(self, folder: RunFolder, asked: Question, host: LocalHost, binary: str, *, quiet: bool) -> None:
        self._folder, self._asked, self._binary, self._quiet = folder, asked, binary, quiet
        self._host = host
        self.path = f"load.{asked.over}"
        self.suite = Suite(
            name="capacity",
            question=f"How {'many connections' if asked.over == 'connections' else 'high a rate'} does {asked.target} "
            f"carry with {limits_text(asked)}?",
            source="the command line",
            directory=".",
            text="",
            server=asked.server,
            load=asked.load,
            run=RunSettings(repeat=asked.goal.trials, warm_up=asked.warm_up),
            limits=asked.limits,
        )
        self.trials: list[TrialRecord] = []
        self.points: dict[int, Point] = {}
        self.record = begin(folder, self.plan(), Request(suite="capacity"), binary, host.metering)
        self.record["command"] = asked.command

    def plan(self) -> Plan:
        loads = sorted(self.points)
        return Plan(
            suite=replace(self.suite, matrix=(Axis(path=self.path, values=tuple(loads)),) if loads else ()),
            seed=0,
            points=tuple(self.points[load] for load in loads),
            trials=tuple(PlannedTrial(number=each.number, block=each.block, point=each.point) for each in self.trials),
        )

    def measure(self, _duration_s: float, load: int) -> float:
        """One trial; the part of its load that was lost."""
        point = self.points.get(load)
        if point is None:
            settings = {**self._asked.load, self._asked.over: load}
            point = Point(number=len(self.points), setting={self.path: load}, server=self._asked.server, load=settings)
            self.points[load] = point
        block = 1 + sum(each.point == point.number for each in self.trials)
        planned = PlannedTrial(number=len(self.trials) + 1, block=block, point=point.number)
        trial = run_trial(self._host, self._binary, self.suite, point, planned)
        self.trials.append(trial)
        self._folder.write_trial(trial)
        lost = lost_part(trial, self._asked)
        if not self._quiet:
            verdict = "met" if lost == 0 else broken_by(trial, self._asked)
            print(f"trial {trial.number}: {load:,} {self._asked.over}: {verdict}", file=sys.stderr)
        return lost

    def null(self, load: Settings) -> TrialRecord:
        """The same generator against a server that does nothing else: our own epoll."""
        server: Settings = {"protocol": self._asked.protocol}
        path: Settings = {}
        if self._asked.protocol == "http":
            server, path = {**server, "synthetic": True}, {"path": "/bytes/64"}
        point = Point(number=0, setting={}, server=server, load={**without(load, "target"), **path})
        return run_trial(self._host, self._binary, self.suite, point, PlannedTrial(number=1, block=1, point=0))

    def finish(self, status: str, answers: list[Json]) -> None:
        """Write down what was measured and what it says."""
        plan = self.plan()
        self.record |= {
            "status": status,
            "finished_unix_s": time.time(),
            "axes": [asdict(each) for each in plan.suite.matrix],
            "points": [asdict(point) for point in plan.points],
            "trials": [asdict(trial) for trial in plan.trials],
            "answers": answers,
        }
        self._folder.write_run(self.record)


def without(settings: Settings, key: str) -> Settings:
    """The settings but for one."""
    return {name: value for name, value in settings.items() if name != key}


def limits_text(asked: Question) -> str:
    """The limits in one line."""
    return " and ".join(limit.text for limit in asked.limits)


def lost_part(trial: TrialRecord, asked: Question) -> float:
    """0 where every limit was met; else how far off it was, which only guides where the search looks next."""
    if trial.outcome != "ok":
        return 0.5
    off = max((_off(trial, limit) for limit in asked.limits), default=0.0)
    if asked.over == "rate" and (unmet := _unmet(trial)) > LOST_TOLERATED:
        off = max(off, unmet)
    return 0.0 if off == 0 else min(MOST_LOST, max(LEAST_LOST, off))


def broken_by(trial: TrialRecord, asked: Question) -> str:
    """What was missed, in words."""
    if trial.outcome != "ok":
        return f"{trial.outcome}: {trial.reason}"
    for limit in asked.limits:
        if _off(trial, limit):
            value = words.number(trial.figures.get(limit.figure), BY_NAME[limit.figure].unit)
            return f"{BY_NAME[limit.figure].label} was {value}, against {limit.text}"
    return f"{_unmet(trial):.1%} of the requests due were failed, too late or never sent"


def _off(trial: TrialRecord, limit: Limit) -> float:
    value = trial.figures.get(limit.figure)
    if value is None:
        return MOST_LOST
    if COMPARE[limit.operator](float(value), float(limit.value)):
        return 0.0
    high, low = max(value, limit.value), min(value, limit.value)
    return max(LEAST_LOST, 1 - low / high) if high > 0 else LEAST_LOST


def _unmet(trial: TrialRecord) -> float:
    requests = cast("dict[str, int]", (cast("Json", trial.load.get("summary")) or {}).get("requests") or {})
    due = requests.get("scheduled", 0)
    return sum(requests.get(key, 0) for key in ("failed", "timed_out", "unsent")) / due if due else 0.0


def find_capacity(folder: RunFolder, asked: Question, host: LocalHost, binary: str, *, quiet: bool) -> Json:
    """Search, and say what was found."""
    from plimsoll_lab.report.page import write_page  # noqa: PLC0415 - loads the charts
    from plimsoll_lab.report.summary import summarise_run  # noqa: PLC0415

    run = _Search(folder, asked, host, binary, quiet=quiet)
    status, answers, bounds, gave_up = "interrupted", cast("list[Json]", []), Bounds(lower=None, upper=None), None
    try:
        closed = without(asked.load, "think")
        ceiling = run.null({**closed, "connections": CEILING_CONNECTIONS}).figures.get("completed_rate")
        try:
            bounds = search(run.measure, asked.goal)
        except SearchTooLong as error:
            gave_up = str(error)
        limited_by, first_break = _limiter(run, asked, bounds, ceiling)
        sentence = gave_up or say(asked, bounds, limited_by, first_break)
        status, answers = "complete", [{"label": "capacity", "text": sentence}]
    finally:
        run.finish(status, answers)
    page = summarise_run(folder)
    write_page(folder, page)
    return {
        "event": "summary",
        "schema_version": SCHEMA_VERSION,
        "run": str(folder.path),
        "report": str(folder.report),
        "over": asked.over,
        "lower": bounds.lower,
        "upper": bounds.upper,
        "limit": limits_text(asked),
        "limited_by": limited_by,
        "first_break": first_break,
        "answer": sentence,
        "generator_ceiling_per_s": ceiling,
        "valid": gave_up is None and limited_by in {None, "server"},
        "trials": len(run.trials),
        "loads": _loads(run, asked),
        "command": asked.command,
        "warnings": page["warnings"],
    }


def _limiter(run: _Search, asked: Question, bounds: Bounds, ceiling: float | None) -> tuple[str | None, str | None]:
    """Who stopped the rise, and what broke first."""
    if bounds.upper is None:
        return None, None
    bad = [trial for trial in _at(run, bounds.upper) if lost_part(trial, asked) > 0]
    breaks = [broken_by(trial, asked) for trial in bad]
    first = statistics.mode(breaks) if breaks else None
    outcomes = [trial.outcome for trial in bad]
    if 2 * sum(outcome in SUSPECT for outcome in outcomes) > len(outcomes):
        return ("generator" if "generator_limited" in outcomes else "environment"), first
    rates = [trial.figures.get("completed_rate", 0.0) for trial in _at(run, bounds.lower or 0)]
    if ceiling and rates and statistics.median(rates) >= NEAR_CEILING * ceiling:
        return "generator", first
    if lost_part(run.null({**asked.load, asked.over: bounds.upper}), asked) > 0:
        return "generator", f"{first}; the generator misses it against a null server too"
    return "server", first


def _at(run: _Search, load: int) -> list[TrialRecord]:
    point = run.points.get(load)
    return [] if point is None else [trial for trial in run.trials if trial.point == point.number]


def say(asked: Question, bounds: Bounds, limited_by: str | None, first_break: str | None) -> str:
    """The answer, in one sentence."""
    unit = "connections" if asked.over == "connections" else "requests/s"
    if bounds.lower is None:
        found = f"carries less than {asked.goal.lowest:,} {unit}"
    elif bounds.upper is None:
        found = f"carries at least {bounds.lower:,} {unit}, the most that was tried"
    else:
        found = f"carries {bounds.lower:,} {unit}, and not {bounds.upper:,}"
    broke = f"; what breaks first: {first_break}" if first_break else ""
    by = {"generator": "; the generator was the limit", "environment": "; the machine was the limit"}
    return f"{asked.target} {found}, with {limits_text(asked)}{broke}{by.get(limited_by or '', '')}"


def _loads(run: _Search, asked: Question) -> list[Json]:
    rows: list[Json] = []
    for load in sorted(run.points):
        trials = _at(run, load)
        good = [trial for trial in trials if lost_part(trial, asked) == 0]
        valid = [trial for trial in trials if trial.outcome == "ok"]
        figures = {
            name: statistics.median(values)
            for name in ("completed_rate", *(limit.figure for limit in asked.limits))
            if (values := [trial.figures[name] for trial in valid if name in trial.figures])
        }
        rows.append({"load": load, "trials": len(trials), "good": len(good), "medians": figures})
    return rows


def render_capacity(summary: Json) -> str:
    """The answer in words: one sentence, one table, and where the page is."""
    loads = cast("list[Json]", summary["loads"])
    names = list(dict.fromkeys(name for row in loads for name in cast("Json", row["medians"])))
    table = [[str(summary["over"]), "met", *(BY_NAME[name].label for name in names)]]
    for row in loads:
        medians = cast("dict[str, float]", row["medians"])
        cells = [words.number(medians.get(name), BY_NAME[name].unit) for name in names]
        table.append([f"{row['load']:,}", f"{row['good']}/{row['trials']}", *cells])
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
    return "\n".join(
        [str(summary["answer"]), "", *lines, "", f"report   {summary['report']}", f"again    {summary['command']}"]
    )
