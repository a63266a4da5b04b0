"""What README.md and the book's contents say of stored runs follows from the stored runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from laboratory import ROOT, Done, run_bench
from plimsoll_lab.suite.read import read_file

GENERATED = ("README.md", "docs/SUMMARY.md")


def made(folder: Path) -> Done:
    """The documents written anew in a folder."""
    return run_bench(folder, "front_page.py")


def copied(folder: Path) -> Path:
    """The documents and the stored runs in a folder."""
    (folder / "docs" / "results").mkdir(parents=True)
    kept = [ROOT / name for name in GENERATED]
    kept += [*(ROOT / "docs").glob("report-*.md"), *(ROOT / "docs" / "results").glob("report-*")]
    kept += [each for each in [ROOT / "docs" / "results" / "demo.svg"] if each.exists()]
    for path in kept:
        shutil.copyfile(path, folder / path.relative_to(ROOT))
    return folder


def stored(suite: str, outcome: str, value: float | None, interval: list[float] | None) -> dict[str, Any]:
    """A summary whose claims all ended alike."""
    claims = read_file(ROOT / "suites" / f"{suite}.toml").claims
    ended = {"outcome": outcome, "value": value, "interval": interval, "reason": "too few descriptors"}
    return {
        "suite": suite,
        "command": f"plimsoll lab run {suite} --fast --seed 1",
        "answer": ["It does."],
        "claims": [{"name": each.name, **ended} for each in claims],
    }


def test_the_documents_say_what_the_stored_runs_say(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    done = made(folder)
    assert done.returncode == 0, done.stderr
    for name in GENERATED:
        assert (folder / name).read_text() == (ROOT / name).read_text(), f"{name}: run make reference"


def test_a_report_is_a_row_with_its_claim_as_it_ended(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    results = folder / "docs" / "results"
    for path in [*results.glob("report-*"), *(folder / "docs").glob("report-*.md")]:
        path.unlink()
    ratio = stored("epoll-scaling", "confirmed", 1.94, [1.9, 1.98])
    (results / "report-epoll-scaling.json").write_text(json.dumps(ratio))
    (results / "report-epoll-scaling-response_time_us-mean.svg").write_text("<svg/>")
    lost = stored("port-fwd-255", "not reachable here", None, None)
    (results / "report-port-fwd-255.json").write_text(json.dumps(lost))
    points = [{"outcome": outcome} for outcome in ("ok", "generator_limited", "hard_limit")]
    demo = {"answer": ["epoll is best.", "select stops."], "points": points}
    (results / "report-demo.json").write_text(json.dumps(demo))
    (results / "demo.svg").write_text("<svg/>")
    (folder / "docs" / "report-epoll-scaling.md").write_text("# It\n")
    assert made(folder).returncode == 0
    readme = (folder / "README.md").read_text()
    rows = [line for line in readme.splitlines() if line.count("|") == 7]
    assert len(rows) == 2 + 5
    epoll = next(line for line in rows if "epoll-scaling:" in line)
    count = len(ratio["claims"])
    assert f"| 1.94 \u00d7 (1.90 to 1.98) | **confirmed**; {count} of {count} confirmed | " in epoll
    assert "`plimsoll lab run epoll-scaling --fast`" in epoll
    assert 'src="docs/results/report-epoll-scaling-response_time_us-mean.svg"' in epoll
    forwarder = next(line for line in rows if "port-fwd:" in line)
    count = len(lost["claims"])
    assert f"| too few descriptors | **not reachable here**; 0 of {count} confirmed | " in forwarder
    assert "| not measured yet | open | `plimsoll lab run three-servers` | none yet |" in readme
    assert "\n\n![epoll is best.](docs/results/demo.svg)\n\n" in readme
    assert "\n\n> epoll is best. select stops.\n\nAt 1 of 3 points of this run the generator was" in readme
    contents = (folder / "docs" / "SUMMARY.md").read_text()
    assert "(five-reports.md)\n  - [epoll-scaling, run again](report-epoll-scaling.md)\n- " in contents


def test_a_document_without_its_marks_is_refused(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "README.md").write_text("# Plimsoll\n")
    done = made(folder)
    assert done.returncode != 0
    assert "no one pair of" in done.stderr


def test_the_five_rows_are_on_the_first_screen() -> None:
    """Of 1280 x 800 pixels GitHub gives a text 832 across, with 12 to 20 letters a line of a cell:
    a row has three lines, or four. Before the rows stands an introduction, behind them the picture
    and the minute.
    """
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [number for number, line in enumerate(lines) if line.count("|") == 7]
    before = [line for line in lines[1 : rows[0]] if line and not line.startswith("<!--")]
    assert len(before) <= 3
    for number in rows[2:]:
        cells = [cell.strip() for cell in lines[number].strip("| ").split(" | ")]
        for cell, most in zip(cells[:5], (45, 40, 28, 45, 50), strict=True):
            assert len(cell.strip("`")) <= most, cell
    headings = [number for number, line in enumerate(lines[1:], 1) if line.startswith("#")]
    after = "\n".join(lines[rows[-1] : headings[0]])
    assert "(docs/results/demo.svg)" in after
    assert "One minute to a first result" in after


def test_a_row_has_the_numbers_of_the_claim_that_it_shortens() -> None:
    number = re.compile(r"[\d,]+\d|thousand|three|twice")
    rows = re.findall(r"^\| \S+: .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 5
    for row in rows:
        then, command = row.split(" | ")[1], row.split(" | ")[4]
        suite = command.strip("`").split()[3]
        claim = read_file(ROOT / "suites" / f"{suite}.toml").claims[0]
        words = claim.name.replace("worse than double", "twice")
        assert set(number.findall(then)) <= set(number.findall(words)), claim.name


def test_a_row_says_what_its_run_was_not_and_promises_no_mark_of_theirs_that_is_not_drawn(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    summary = folder / "docs/results/report-http-saturation-bandwidth.json"
    chart = folder / "docs/results/report-http-saturation-bandwidth-goodput_bits_per_s.svg"

    def row() -> str:
        assert made(folder).returncode == 0
        return next(line for line in (folder / "README.md").read_text().splitlines() if "| http-saturation" in line)

    kept = json.loads(summary.read_text())
    summary.write_text(json.dumps({**kept, "congestion": []}))
    chart.write_text("<svg><text>ours</text></svg>")
    assert "** over bbr;" in row()
    assert "theirs" not in row()
    summary.write_text(json.dumps({**kept, "congestion": ["cubic"]}))
    chart.write_text("<svg><text>theirs</text></svg>")
    assert "bbr" not in row()
    assert "theirs and ours" in row()
