"""The summary in the terminal: the verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report import documents, network
from plimsoll_lab.report.searches import render_searches
from plimsoll_lab.report.warning_lines import warning_lines
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary

SHOWN = (
    "completed_rate",
    "response_time_us.p50",
    "response_time_us.p99",
    "server.cpu_us_per_request",
    "server.memory_bytes",
)
"""The figures of the table, those of the verdict first; every other one is in the JSON."""
HEADINGS = {
    "completed_rate": "completed",
    "response_time_us.p50": "p50",
    "response_time_us.p99": "p99",
    "server.cpu_us_per_request": "CPU/request",
    "server.memory_bytes": "memory",
}
COLOURS = {"better": "32", "equivalent": "36", "not shown": "33", "invalid": "31"}
BOLD, DIM, RED, YELLOW = "1", "2", "31", "33"


class Paint:
    """Colours text, or leaves it alone."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __call__(self, text: str, code: str) -> str:
        """The text in a colour (an SGR code)."""
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text


def render(summary: RunSummary, run: RunRecord, *, colour: bool) -> str:
    """The whole summary as text, without a line end at its end."""
    paint = Paint(colour=colour)
    parts = [
        paint(summary.question, BOLD),
        "",
        *(f"  {sentence}" for sentence in summary.answer),
        *_verdicts(summary, run, paint),
        *_stops(summary, paint),
        *(render_searches(summary, run) if run.search is not None else _tables(summary, run, paint)),
        *_network(run, paint),
        *_limits(summary, run, paint),
        *documents.lines(summary, run),
        *(["", *warning_lines(summary.warnings, colour=colour)] if summary.warnings else []),
        "",
        f"report   {summary.report}",
        f"again    {summary.command}",
    ]
    return "\n".join(parts)


def _verdicts(summary: RunSummary, run: RunRecord, paint: Paint) -> list[str]:
    rows = []
    previous = None
    for verdict in summary.verdicts:
        figure = run.figure(verdict.figure)
        rows.append(
            (
                f"{figure.label}, {figure.better} is better" if figure != previous else "",
                formatting.setting(verdict.at),
                formatting.best(verdict) or "-",
                formatting.others(verdict) or "-",
            )
        )
        previous = figure
    note = ": who may be best, and at least how many times worse the others are; all bounds hold together with 95 %"
    headings = ("", "", "best, within", "at least times worse")
    widths = [max((len(row[column]) for row in (headings, *rows)), default=0) for column in range(4)]
    lines = ["", paint("verdicts", BOLD) + paint(note, DIM)] if rows else []
    for row in (headings, *rows) if rows else ():
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        lines.append(f"  {paint(cells, DIM) if row is headings else cells}")
    return lines


def _stops(summary: RunSummary, paint: Paint) -> list[str]:
    if not summary.stops:
        return []
    lines = ["", paint("where each stops", BOLD)]
    rows = [(each.contender, formatting.setting(each.at), formatting.stop(each)) for each in summary.stops]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row, each in zip(rows, summary.stops, strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {cells}  {each.reason}")
    return lines


def _tables(summary: RunSummary, run: RunRecord, paint: Paint) -> list[str]:
    compare = run.family.compare
    rows: list[list[str]] = []
    groups: dict[str, list[list[str]]] = {}
    for point in summary.points:
        setting = {path: value for path, value in point.point.items() if path != compare}
        name = formatting.contender(point.point, compare) if compare else formatting.setting(setting)
        group = formatting.setting(setting) if compare else "median of the trials"
        if point.outcome == "ok" or point.doubtful:
            cells = [formatting.median(point, figure, run.figure(figure).unit) for figure in SHOWN]
        else:
            cells = [formatting.outcome(point.outcome)] + [""] * (len(SHOWN) - 1)
        row = [name, *cells, f"{point.valid_n}/{point.n}"]
        groups.setdefault(group, []).append(row)
        rows.append(row)
    headings = ["", *(HEADINGS[figure] for figure in SHOWN), "trials"]
    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]
    lines = []
    for group, members in groups.items():
        lines += [
            "",
            paint(group, BOLD) + paint(", medians" if compare else "", DIM),
            paint(_row(headings, widths), DIM),
        ]
        lines += [_row(row, widths) for row in members]
    return lines


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    return (
        "  " + first + "  " + "  ".join(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    ).rstrip()


def _network(run: RunRecord, paint: Paint) -> list[str]:
    rows = [list(row) for row in network.rows(run)]
    if not rows:
        return []
    table = [list(network.HEADINGS), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    head, *body = [_row(row, widths) for row in table]
    return ["", paint("network", BOLD) + paint(f", {network.EXPLANATION}", DIM), paint(head, DIM), *body]


def _limits(summary: RunSummary, run: RunRecord, paint: Paint) -> list[str]:
    lines = []
    stopped = [point.point for point in summary.points if point.outcome == "hard_limit"]
    for title, code, limits in (
        ("limits missed", RED, summary.limits_missed),
        ("limits of which it cannot be told (more repetitions tell more)", YELLOW, summary.limits_undecided),
    ):
        lines += ["", paint(title, code)] if limits else []
        for each in limits:
            unit = run.figure(each.figure).unit
            median, interval = formatting.number(each.median, unit), formatting.interval(each.median_ci95, unit)
            told = f"the median is {median} (95 %: {interval})"
            told = "no valid trial has this figure" if each.median is None else told
            told = "the server reached a limit of its own" if each.point in stopped else told
            lines.append(f"  {formatting.setting(each.point)}: {each.limit}; {told}")
    return lines
