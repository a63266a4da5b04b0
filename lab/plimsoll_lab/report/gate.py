"""The gate on the page, and its summary for others to read: Markdown for a pull request, JUnit XML
for a CI server.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.data_files import markdown_code, markdown_text
from plimsoll_lab.report.view import Cell, Part, Section, Table, Text
from plimsoll_lab.store.folder import write_atomically
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import GateOutcome, GateRecord, LossRecord, RunSummary

FILES = {"md": "summary.md", "junit": "junit.xml"}
NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 (2.2) has no place for, not even escaped; a text of a suite may hold it."""


def write_gate(folder: Path, summary: RunSummary, run: RunRecord, kinds: Sequence[str]) -> list[Path]:
    """Write the summaries asked for beside the page; their paths."""
    if summary.gate is None:
        return []
    makers = {"md": markdown, "junit": junit}
    written = []
    for kind in kinds:
        path = folder / FILES[kind]
        write_atomically(path, makers[kind](summary, summary.gate, run))
        written.append(path)
    return written


TONES: dict[GateOutcome, str] = {"pass": "ok", "worse": "failed", "undecided": "doubtful", "failed": "failed"}


def section(gate: GateRecord | None, run: RunRecord) -> Section:
    """The section of the page: what the gate rests on; without parts of a run that is no gate."""
    if gate is None:
        return Section(name="gate", title="The gate")
    table = table_of_losses(gate, run)
    parts: list[Part] = [Text(text=f"{reason}.") for reason in gate.reasons]
    if table.rows:
        parts.append(table)
    note = (
        "A loss is a part of the baseline's figure; below 0 the contender is better. All lower bounds hold together "
        "with 95 %, each upper bound alone. The gate passes where every upper bound is below the tolerance, and finds "
        "a loss where a lower bound is above it."
    )
    return Section(name="gate", title="The gate", note=note, parts=parts)


def table_of_losses(gate: GateRecord, run: RunRecord) -> Table:
    """A row a comparison."""
    rows = tuple(
        (
            Cell(text=run.figure(each.figure).label, heading=True),
            Cell(text=each.contender),
            Cell(text=formatting.setting(each.at)),
            *(Cell(text=part) for part in bounded(each)),
            Cell(text=str(each.blocks)),
            Cell(text="", badge=each.outcome, tone=TONES[each.outcome]),
        )
        for each in gate.losses
    )
    head = ("figure", "contender", "at", "loss", "at least", "at most", "blocks", "outcome")
    caption = f"How much worse than {gate.baseline} each contender is; {percent(gate.tolerance)} is tolerated"
    return Table(caption=caption, head=head, rows=rows)


def markdown(summary: RunSummary, gate: GateRecord, run: RunRecord) -> str:
    """A heading, the outcome in a sentence, and a row a comparison."""
    reasons = [f"- {markdown_text(reason)}" for reason in gate.reasons]
    lines = [
        f"## {markdown_text(summary.suite)}: {gate.outcome}",
        "",
        f"{markdown_text(gate.text)} Baseline: {markdown_text(gate.baseline)}; tolerance: {percent(gate.tolerance)}.",
        "",
        "| contender | figure | at | loss | at least | at most | |",
        "|---|---|---|---:|---:|---:|---|",
        *(_row(each, run) for each in gate.losses),
        *(["", *reasons] if reasons else []),
        "",
        f"Again: {markdown_code(summary.command)}",
    ]
    return "\n".join(lines) + "\n"


def _row(loss: LossRecord, run: RunRecord) -> str:
    cells = (
        markdown_text(loss.contender),
        markdown_text(run.figure(loss.figure).label),
        markdown_text(formatting.setting(loss.at)),
        *bounded(loss),
        loss.outcome,
    )
    return f"| {' | '.join(cells)} |"


def junit(summary: RunSummary, gate: GateRecord, run: RunRecord) -> str:
    """A test case a comparison; a loss is a failure, a failed server an error, and an undecided
    comparison is skipped.
    """
    suite = ET.Element("testsuite", name=f"plimsoll gate {summary.suite}")
    for each in gate.losses:
        name = f"{each.contender}: {run.figure(each.figure).label} at {formatting.setting(each.at)}"
        case = ET.SubElement(suite, "testcase", classname=summary.suite, name=name)
        loss, least, most = bounded(each)
        said = f"loss {loss}, at least {least}, at most {most}"
        if each.outcome == "worse":
            ET.SubElement(case, "failure", message=said)
        elif each.outcome == "undecided":
            ET.SubElement(case, "skipped", message=said)
        ET.SubElement(case, "system-out").text = said
    whole = ET.SubElement(suite, "testcase", classname=summary.suite, name="gate")
    kind = {"worse": "failure", "failed": "error", "undecided": "skipped"}.get(gate.outcome)
    if kind is not None:
        ET.SubElement(whole, kind, message=gate.text)
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(gate.losses) + 1))
    ET.indent(suite)
    text = NO_XML.sub("\ufffd", ET.tostring(suite, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def bounded(loss: LossRecord) -> tuple[str, str, str]:
    """A loss and its bounds, which are rounded outwards, so that they hold as they are shown."""
    least = None if loss.at_least is None else formatting.part_at_least(loss.at_least)
    most = None if loss.at_most is None else formatting.part_at_most(loss.at_most)
    return percent(loss.loss), percent(least), percent(most)


def percent(part: float | None) -> str:
    """`7.2 %`, or a dash where there is none."""
    return "-" if part is None else formatting.percent(part)
