"""The gate's summary for others to read: Markdown for a pull request, JUnit XML for a CI server."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.store.folder import write_atomically
from plimsoll_lab.store.records import Json

FILES = {"md": "summary.md", "junit": "junit.xml"}


def write_gate(folder: Path, summary: Json, figures: Mapping[str, Json], kinds: Sequence[str]) -> list[Path]:
    """Write the summaries asked for beside the page; their paths."""
    gate = cast("Json | None", summary["gate"])
    if gate is None:
        return []
    makers = {"md": markdown, "junit": junit}
    written = []
    for kind in kinds:
        path = folder / FILES[kind]
        write_atomically(path, makers[kind](summary, gate, figures))
        written.append(path)
    return written


def markdown(summary: Json, gate: Json, figures: Mapping[str, Json]) -> str:
    """A heading, the outcome in a sentence, and a row a comparison."""
    rows = [_row(each, figures) for each in cast("list[Json]", gate["losses"])]
    reasons = [f"- {_cell(reason)}" for reason in cast("list[str]", gate["reasons"])]
    lines = [
        f"## {_cell(summary['suite'])}: {gate['outcome']}",
        "",
        f"{_cell(gate['text'])} Baseline: {_cell(gate['baseline'])}; tolerance: {percent(gate['tolerance'])}.",
        "",
        "| contender | figure | at | loss | at least | at most | |",
        "|---|---|---|---:|---:|---:|---|",
        *rows,
        *(["", *reasons] if reasons else []),
        "",
        f"Again: `{summary['command']}`",
    ]
    return "\n".join(lines) + "\n"


def _row(loss: Json, figures: Mapping[str, Json]) -> str:
    cells = (
        _cell(loss["contender"]),
        _cell(figures[str(loss["figure"])]["label"]),
        _cell(formatting.setting(cast("Json", loss["at"]))),
        *(percent(loss[key]) for key in ("loss", "at_least", "at_most")),
        str(loss["outcome"]),
    )
    return f"| {' | '.join(cells)} |"


def junit(summary: Json, gate: Json, figures: Mapping[str, Json]) -> str:
    """A test case a comparison; a loss is a failure, a failed server an error, and what cannot be
    told is skipped.
    """
    suite = ET.Element("testsuite", name=f"plimsoll gate {summary['suite']}")
    cases = cast("list[Json]", gate["losses"])
    for each in cases:
        label = figures[str(each["figure"])]["label"]
        name = f"{each['contender']}: {label} at {formatting.setting(cast('Json', each['at']))}"
        case = ET.SubElement(suite, "testcase", classname=str(summary["suite"]), name=name)
        said = f"loss {percent(each['loss'])}, at least {percent(each['at_least'])}, at most {percent(each['at_most'])}"
        if each["outcome"] == "worse":
            ET.SubElement(case, "failure", message=said)
        elif each["outcome"] == "undecided":
            ET.SubElement(case, "skipped", message=said)
        ET.SubElement(case, "system-out").text = said
    whole = ET.SubElement(suite, "testcase", classname=str(summary["suite"]), name="gate")
    kind = {"worse": "failure", "failed": "error", "undecided": "skipped"}.get(str(gate["outcome"]))
    if kind is not None:
        ET.SubElement(whole, kind, message=str(gate["text"]))
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(cases) + 1))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def percent(part: object) -> str:
    """`7.2 %`, or a dash where there is none."""
    return "-" if part is None else f"{cast('float', part) * 100:.1f} %"


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
