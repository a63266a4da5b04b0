"""The parts of README.md and of the book's contents that follow from stored runs.

`PYTHONPATH=lab python bench/front_page.py` writes them anew from the summaries in docs/results/
(`make reference` does it too). `... bench/front_page.py RUN` first keeps a run of the suite demo,
whose picture is then at the top of README.md.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from report_plots import THEIRS
from reports import CHAPTERS, DEFAULT_CONTROL, RESULTS, Json, file_of, missed_control, summary_of

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.reasons import significant
from plimsoll_lab.suite.documents import Claim
from plimsoll_lab.suite.figures import figure_named
from plimsoll_lab.suite.read import read_file

README, CONTENTS = Path("README.md"), Path("docs/SUMMARY.md")
SUITES = Path(__file__).resolve().parent.parent / "suites"
PICTURE = RESULTS / "demo.svg"
PICTURE_WIDTH = 72
"""Pixels: no higher than two lines of a row. It leads to the chapter that shows it whole."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """What a report's row shows. A row has two or three lines, so that all five are on the first
    screen of a small laptop.
    """

    suite: str
    """Its first claim is shown, whatever the run says of it."""
    question: str
    """The question of the suite, shorter."""
    then: str
    """The claim, shorter."""


HEADLINES = {
    "port-fwd": Headline(
        suite="port-fwd-255",
        question="What does a forwarder cost?",
        then="more than twice the time at 60,000",
    ),
    "tcpbenchmark": Headline(
        suite="tcpbenchmark",
        question="What does a model cost?",
        then="a thousand connect as fast as three",
    ),
    "http-saturation": Headline(
        suite="http-saturation-bandwidth",
        question="What does the link do?",
        then="throughput rises with the bandwidth",
    ),
    "three-servers": Headline(
        suite="three-servers",
        question="Threads, select or epoll?",
        then="epoll serves all 20,000 clients",
    ),
    "epoll-scaling": Headline(
        suite="epoll-scaling",
        question="How does time follow clients?",
        then="5,000 wait twice as long as 2,500",
    ),
}


def row(chapter: str) -> str:
    """A report in one row: question, then, now, verdict, command, picture."""
    shown = HEADLINES[chapter]
    suite = shown.suite
    claim = read_file(SUITES / f"{suite}.toml").claims[0]
    now, verdict, command, picture = "not measured yet", "open", f"plimsoll lab run {suite}", "none yet"
    if file_of(suite).exists():
        kept = json.loads(file_of(suite).read_text(encoding="utf-8"))
        found = next((each for each in kept["claims"] if each["name"] == claim.name), None)
        if found is not None:
            # Its chapter says which one the suite asks for, and that the run has to be made again.
            otherwise = f" over {DEFAULT_CONTROL}" if missed_control(kept) else ""
            now, verdict = _now(claim, found), f"**{found['outcome']}**{otherwise}; {_confirmed(chapter)}"
        command += " --fast" if "--fast" in kept["command"] else ""
        chart = RESULTS / f"report-{suite}-{claim.figure.replace('.', '-')}.svg"
        if chart.exists():
            both = f">{THEIRS}<" in chart.read_text(encoding="utf-8")
            alt = f"{claim.figure}, theirs and ours" if both else claim.figure
            picture = f'[<img src="{chart}" alt="{alt}" width="{PICTURE_WIDTH}">](docs/report-{chapter}.md)'
    cells = [f"{chapter}: {shown.question}", shown.then, now, verdict, f"`{command}`", picture]
    return "| " + " | ".join(cells) + " |"


def _now(claim: Claim, found: Json) -> str:
    """The figure, or the ratio, with its interval."""
    if found["value"] is None:
        return str(found["reason"])
    figure = figure_named(claim.figure)
    unit = figure.unit if figure is not None else ""

    def text(value: float) -> str:
        return formatting.number(value, unit) if claim.over is None else f"{significant(value)}"

    low_high = found["interval"]
    within = f" ({text(low_high[0])} to {text(low_high[1])})" if low_high else ""
    return text(found["value"]) + (" \u00d7" if claim.over is not None else "") + within


def _confirmed(chapter: str) -> str:
    """How many claims of all suites of a chapter are confirmed."""
    told = [
        each["outcome"]
        for suite in CHAPTERS[chapter]
        if file_of(suite).exists()
        for each in json.loads(file_of(suite).read_text(encoding="utf-8"))["claims"]
    ]
    return f"{told.count('confirmed')} of {len(told)} confirmed"


def table() -> list[str]:
    """The five rows."""
    return [
        "| question | then | now | verdict | command | picture |",
        "|---|---|---|---|---|---|",
        *(row(chapter) for chapter in HEADLINES),
    ]


def picture() -> list[str]:
    """The picture of the stored run of the demo; nothing where none is stored."""
    return _wrapped(f"![{_answer()[0]}]({PICTURE})", 100) if PICTURE.exists() else []


def answer() -> list[str]:
    """Its answer, and what it does not judge."""
    if not PICTURE.exists():
        return []
    return [*(f"> {line}" for line in _wrapped(" ".join(_answer()), 98)), *_caveat()]


def _caveat() -> list[str]:
    """At how many points the generator was the limit; nothing where it was at none."""
    outcomes = [point["outcome"] for point in json.loads(file_of("demo").read_text(encoding="utf-8"))["points"]]
    limited = outcomes.count("generator_limited")
    if not limited:
        return []
    text = f"At {limited} of {len(outcomes)} points of this run the generator was the limit: there the server's CPU "
    text += "and memory are judged, and its response times are not."
    return ["", *_wrapped(text, 100)]


def _answer() -> list[str]:
    kept: list[str] = json.loads(file_of("demo").read_text(encoding="utf-8"))["answer"]
    return kept


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def between(text: str, mark: str, lines: Sequence[str]) -> str:
    """A document with these lines between a mark's two comments; ValueError where it has none."""
    begin, end = f"<!-- {mark}: made by bench/front_page.py -->", f"<!-- end of {mark} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the document has no one pair of '{begin}' and '{end}'")
    head, _, rest = text.partition(begin)
    tail = rest.partition(end)[2]
    inside = "\n".join(["", *lines, ""]) if lines else ""
    return f"{head}{begin}\n{inside}\n{end}{tail}" if lines else f"{head}{begin}\n{end}{tail}"


def contents(text: str) -> str:
    """The book's contents with the chapters that exist."""
    text = re.sub(r"^  - \[[^]]*\]\(report-.*\)\n", "", text, flags=re.MULTILINE)
    chapters = [each for each in CHAPTERS if (CONTENTS.parent / f"report-{each}.md").exists()]
    lines = "".join(f"  - [{each}, run again](report-{each}.md)\n" for each in chapters)
    return re.sub(r"(^- \[.*\]\(five-reports\.md\)\n)", rf"\1{lines}", text, flags=re.MULTILINE)


def keep_demo(run: str) -> None:
    """Keep the summary and the picture of a run of the demo."""
    summary = summary_of(run)
    if summary["suite"] != "demo":
        raise SystemExit(f"{run}: a run of {summary['suite']}; only the demo's picture stands in README.md")
    export = [sys.executable, "-m", "plimsoll_lab", "report", run, "--export", "svg", "--quiet"]
    done = subprocess.run(export, capture_output=True, text=True, check=False)
    # 4: some points have no result, which is said on the page; the picture is drawn all the same.
    if done.returncode not in {0, 4}:
        raise SystemExit(f"{run}: its charts cannot be drawn: {done.stderr.strip()[-200:]}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(run) / "charts" / "headline.svg", PICTURE)
    file_of("demo").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Write README.md and the book's contents anew."""
    for run in arguments:
        keep_demo(run)
    text = README.read_text(encoding="utf-8")
    text = between(text, "the demo's picture", picture())
    text = between(text, "the demo's answer", answer())
    README.write_text(between(text, "the five reports", table()), encoding="utf-8")
    CONTENTS.write_text(contents(CONTENTS.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
