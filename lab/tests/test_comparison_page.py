"""Comparisons, as a page and in the terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import stored_run

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.comparison import compare_runs
from plimsoll_lab.report.compare_page import render_compare_page
from plimsoll_lab.report.comparison import render_comparison


def test_a_comparison_tells_a_shared_reason_once_and_a_digest_by_its_beginning(tmp_path: Path) -> None:
    sides = [stored_run(tmp_path / name, ("epoll", "poll")) for name in ("0001", "0002")]
    for folder, digest in zip(sides, ("a" * 64, "b" * 64), strict=True):
        run = folder.read_run()
        run.versions = {**run.versions, "plimsoll_sha256": digest}
        folder.write_run(run)
    page = render_compare_page(sides[:1], sides[1:])
    assert page.count("1 run a side is too few; at least 5, or <code>plimsoll lab gate</code> in one run") == 1
    assert f"<td>{'a' * 12}…</td><td>{'b' * 12}…</td>" in page
    assert "b" * 64 in page[page.index("The digests in full") :]
    told = render_comparison(compare_runs(sides[:1], sides[1:]), colour=False)
    assert told.count("1 run a side is too few") == 1
    forest = page[page.index('data-chart="forest"') :]
    (anchor,) = set(re.findall(r"<text ([^>]*)>completed rate, model epoll", forest))
    still = forest[: forest.index("</svg>")]
    assert "stroke-dasharray" not in still, "a line through all rows would strike the words out"
    assert 'text-anchor="end"' not in anchor, "words that end at the plot are cut where a reader's letters are wider"


def test_an_answer_about_several_runs_a_side_says_how_many(tmp_path: Path) -> None:
    runs = [stored_run(tmp_path / name, ("epoll", "poll")) for name in ("0001", "0002", "0003", "0004")]
    told = render_comparison(compare_runs(runs[:2], runs[2:]), colour=False).splitlines()[0]
    names = [str(each.path) for each in (runs[2], runs[0])]
    assert told.startswith(f"No verdict on B ({names[0]} and 1 more) and A ({names[1]} and 1 more):")


@pytest.mark.parametrize(
    ("ratio", "shown"), [(1.0004, "+0.04 %"), (0.9996, "-0.04 %"), (1, "+0.0 %"), (0.96, "-4.0 %"), (1.5, "+50.0 %")]
)
def test_a_change_that_rounds_to_nothing_has_no_minus(ratio: float, shown: str) -> None:
    assert formatting.change(ratio) == shown


def test_curves_of_another_load_are_not_drawn_over_each_other(tmp_path: Path) -> None:
    sides = [stored_run(tmp_path / name, ("epoll", "poll")) for name in ("0001", "0002")]
    times = {"count": 10_000, "p50": 100.0, "p75": 150.0, "p90": 200.0, "p99": 400.0}
    for folder in sides:
        for trial in folder.read_trials():
            folder.write_trial(replace(trial, load={"summary": {"response_time_us": times}}))
    run = sides[1].read_run()
    poll = run.points[1].model_copy(update={"load": {"connections": 10, "think": "1s"}})
    run.points = (run.points[0], poll)
    sides[1].write_run(run)
    page = render_compare_page(sides[:1], sides[1:])
    drawn = re.findall(r"<figcaption>Response time by percentile, ([^;]*);", page)
    assert drawn == ["model epoll"], "of poll the second run paused for a second"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["24684092 kB"], ("23.5 GiB",)),
        (["24684092 kB", "24684088 kB"], ("24684092 kB", "24684088 kB")),
        (["24684092 kB", None], ("23.5 GiB", "not recorded")),
        ([{"soft": 1024, "hard": 20_000}, "kB"], ("soft 1024, hard 20000", "kB")),
    ],
)
def test_memory_is_shown_in_a_unit_for_people_unless_that_hides_a_difference(
    given: list[object], shown: tuple[str, ...]
) -> None:
    assert formatting.facts(given) == shown
