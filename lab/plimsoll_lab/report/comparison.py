"""A comparison of two runs in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.terminal import BOLD, COLOURS, RED, Paint
from plimsoll_lab.report.warning_lines import warning_lines
from plimsoll_lab.store.comparison_summary import ComparisonSummary


def render_comparison(summary: ComparisonSummary, *, colour: bool) -> str:
    """The same in words: the answer, then why, then every figure."""
    paint = Paint(colour=colour)
    lines = [paint(answer_of(summary), BOLD)]
    lines += [f"  {paint('not comparable', RED)}  {reason}" for reason in summary.not_comparable]
    for each in summary.lost:
        where = formatting.setting(each.point)
        lines.append(f"  {paint('lost', RED)}  {where}: A carried it, B did not: {each.reason}")
    reasons = {each.reason for each in summary.verdicts}
    alike = reasons.pop() if len(reasons) == 1 and len(summary.verdicts) > 1 else ""
    rows = [
        (
            each.figure,
            formatting.setting(each.at),
            formatting.ratio(each.ratio, each.ratio_ci95),
            f"{each.winner} better" if each.call == "better" else each.call,
            "" if alike else each.reason,
        )
        for each in summary.verdicts
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    if rows:
        lines += ["", paint("B over A", BOLD) + ", ratio of the medians with its 95 % interval"]
        lines += [f"  of every figure: {alike}"] if alike else []
    for row, verdict in zip(rows, summary.verdicts, strict=True):
        code = RED if row[3] == "A better" else COLOURS[verdict.call]
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False))
        call = paint(row[3].ljust(widths[3]), code) + f"  {row[4]}" if row[4] else paint(row[3], code)
        lines.append(f"  {cells}  {call}")
    for line in warning_lines(summary.warnings, colour=colour):
        lines += ["", line]
    return "\n".join([*lines, "", f"report   {summary.report}"])


def _side(letter: str, runs: Sequence[str]) -> str:
    """`runs/0007`, or `B (runs/0007 and 4 more)`."""
    return runs[0] if len(runs) == 1 else f"{letter} ({runs[0]} and {len(runs) - 1} more)"


def answer_of(summary: ComparisonSummary) -> str:
    """Whether B is worse, in one sentence without a full stop."""
    a, b = (_side(*side) for side in (("A", summary.baselines), ("B", summary.runs)))
    if not summary.comparable:
        return f"{b} cannot be compared with {a}"
    if summary.worse:
        return f"{b} is worse than {a}"
    judged = [each for each in summary.verdicts if each.call != "invalid" and each.p_adjusted is not None]
    if not judged:
        return f"No verdict on {b} and {a}: no figure has enough runs with a valid result on both sides"
    rest = "" if summary.valid else ", as far as they can be compared"
    if any((each.call, each.winner) == ("better", "B") for each in judged):
        return f"{b} is better than {a}, and nowhere shown to be worse{rest}"
    return f"{b} is not shown to be worse than {a}{rest}"
