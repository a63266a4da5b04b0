"""A run for other programs: tables as Parquet, the summary as JSON and Markdown, response times for
HdrHistogram's plotters, figures as OpenMetrics.
"""

from __future__ import annotations

import importlib.resources
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.distributions import histogram_of, of_point
from plimsoll_lab.report.warning_lines import WORDS
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.query import TABLES, write_table
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary
from plimsoll_lab.suite.figures import CAPACITY
from plimsoll_lab.suite.settings import Settings

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

COLUMNS = (
    ("completed_rate", "completed"),
    ("response_time_us.p50", "p50"),
    ("response_time_us.p99", "p99"),
    ("server.cpu_us_per_request", "CPU per request"),
    ("server.memory_bytes", "memory"),
)
"""The columns of the Markdown table, where the run has them."""
US = 1000.0
"""Nanoseconds, which histograms count in, to the microseconds that are written."""
LONGEST_NS = 3_600_000_000_000 * 24
"""A day: HdrHistogram wants to know beforehand."""
DIGITS = 3
"""Significant digits of the generator's histograms."""


def json_files(folder: RunFolder, summary: Json) -> list[Path]:
    """The summary, and the schema that it keeps to."""
    schema = importlib.resources.files("plimsoll_lab.store").joinpath("summary.schema.json").read_text("utf-8")
    return [
        _write(folder.path / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n"),
        _write(folder.path / "summary.schema.json", schema),
    ]


def parquet_files(folder: RunFolder) -> list[Path]:
    """The tables `runs`, `points` and `trials` of `lab query`; timelines and requests are Parquet
    already.
    """
    return [write_table(folder, table, folder.path / f"{table}.parquet") for table in TABLES]


def markdown_file(folder: RunFolder, run: RunRecord, summary: RunSummary) -> list[Path]:
    """The answer and the medians, for a comment on a pull request."""
    return [_write(folder.path / "report.md", markdown(run, summary))]


def markdown(run: RunRecord, summary: RunSummary) -> str:
    """The question, the answer, a row a point, and the warnings."""
    figures = run.figures_by_name
    columns = [(name, heading) for name, heading in COLUMNS if name in figures]
    trials = summary.trials
    lines = [f"## {markdown_text(summary.question)}", ""]
    lines += [*(markdown_text(sentence) for sentence in summary.answer), ""]
    lines += [f"| point | {' | '.join(heading for _, heading in columns)} | valid trials |"]
    lines += [f"|---|{'---:|' * (len(columns) + 1)}"]
    for point in summary.points:
        told = point.outcome == "ok" or point.doubtful
        cells = [formatting.median(point, name, figures[name].unit) if told else "-" for name, _ in columns]
        valid = f"{point.valid_n}/{point.n}" if point.outcome == "ok" else formatting.outcome(point.outcome)
        lines.append(f"| {markdown_text(formatting.setting(point.point))} | {' | '.join(cells)} | {valid} |")
    warnings = [f"- {WORDS[each.severity]}, `{each.code}`: {markdown_text(each.message)}" for each in summary.warnings]
    lines += ["", *warnings] if warnings else []
    again = f"Again: {markdown_code(summary.command)}"
    lines += ["", f"{trials.valid} of {trials.measured} trials are valid results. {again}"]
    return "\n".join(lines) + "\n"


def markdown_text(text: object) -> str:
    """Text in a line of Markdown: no cell ends early, and no markup of a suite comes to life."""
    return re.sub(r"([\\|<>`*_\[\]])", r"\\\1", " ".join(str(text).split()))


def markdown_code(text: str) -> str:
    """A text as code in a line of Markdown: between more backticks than it has in a row (CommonMark
    0.31, 6.1).
    """
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if len(fence) > 1 else ""
    return f"{fence}{space}{text}{space}{fence}"


def hgrm_files(folder: RunFolder, run: RunRecord, trials: Sequence[TrialRecord]) -> list[Path]:
    """A file a point: the response times of all its valid trials, in microseconds. A histogram over
    disturbed moments, or of a generator that was late, is left out: nothing takes that out of it.
    """
    home = folder.path / "hgrm"
    home.mkdir(exist_ok=True)
    written = []
    for point in run.points:
        made = [each for each in trials if each.point == point.number]
        clean, left_out, late = of_point(made)
        whole = _merged(clean)
        if whole is not None:
            lines = io.BytesIO()
            whole.output_percentile_distribution(lines, US)
            # The library scales the lines and the maximum, and leaves these two in nanoseconds.
            mean, stdev = whole.get_mean_value() / US, whole.get_stddev() / US
            footer = f"#[Mean    = {mean:12.3f}, StdDeviation   = {stdev:12.3f}]"
            text = re.sub(r"#\[Mean .*\]", footer, lines.getvalue().decode())
            path = home / f"point-{point.number:04d}.hgrm"
            valid = sum(each.outcome == "ok" for each in made)
            without = "".join(
                f"{count} of {valid} trials left out as their {cause}; " for cause, count in left_out.items()
            )
            without += f"the generator's own lateness is half or more of {', '.join(late)}; " if late else ""
            said = f"#[{formatting.setting(point.setting)}; {without}response time in us]\n"
            written.append(_write(path, text + said))
    return written


def _merged(trials: Sequence[TrialRecord]) -> HdrHistogram | None:
    from hdrh.histogram import HdrHistogram  # noqa: PLC0415 - only this export needs it

    whole: HdrHistogram | None = None
    for each in map(histogram_of, trials):
        if each is not None:
            whole = whole or HdrHistogram(1, LONGEST_NS, DIGITS)
            whole.add(each)
    return whole


def openmetrics_file(folder: RunFolder, run: RunRecord, summary: RunSummary) -> list[Path]:
    """The medians for a time-series database."""
    return [_write(folder.path / "metrics.txt", openmetrics(run, summary))]


def openmetrics(run: RunRecord, summary: RunSummary) -> str:
    """The text format of OpenMetrics 1.0: a gauge a figure, a sample a point and statistic."""
    lines = []
    points = [point for point in summary.points if point.outcome == "ok"]
    common = {"suite": summary.suite, "run": run.run}
    for figure in (each for each in run.figures if each.name != CAPACITY):
        name = "plimsoll_lab_" + re.sub(r"\W", "_", figure.name)
        samples = []
        for point in points:
            found = point.figures.get(figure.name)
            if found is None:
                continue
            labels = common | ({"doubtful": "true"} if point.doubtful else {})
            labels |= _setting_labels(point.point)
            low, high = found.median_ci95 or (None, None)
            for statistic, value in (("median", found.median), ("median_low", low), ("median_high", high)):
                if value is not None:
                    samples.append(f"{name}{_labels(labels | {'statistic': statistic})} {value!r}")
        if samples:
            lines += [f"# TYPE {name} gauge", f"# HELP {name} {_escaped(figure.label)}", *samples]
    lines += _capacities(run, summary, common)
    return "\n".join([*lines, "# EOF"]) + "\n"


def _capacities(run: RunRecord, summary: RunSummary, common: dict[str, str]) -> list[str]:
    """The bounds of each search, where both are known or one. The upper one is the server's own:
    where something else was in the way, the server may carry more.
    """
    from plimsoll_lab.analysis.searches import LIMITERS  # noqa: PLC0415 - the statistics load in a second

    name = "plimsoll_lab_capacity"
    samples = [
        f"{name}{_labels(common | _setting_labels(each.point) | {'statistic': statistic})} {value!r}"
        for each in summary.capacities
        for statistic, value in (("lower", each.lower), ("upper", each.upper))
        if value is not None and not (statistic == "upper" and each.limited_by in LIMITERS)
    ]
    if not samples:
        return []
    return [f"# TYPE {name} gauge", f"# HELP {name} {_escaped(run.figure(CAPACITY).label)}", *samples]


def _setting_labels(setting: Settings) -> dict[str, str]:
    return {re.sub(r"\W", "_", path): formatting.value(value) for path, value in setting.items()}


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path
