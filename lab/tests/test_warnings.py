"""Warnings in summaries: each has its severity, and a count where single trials show it."""

from __future__ import annotations

from plimsoll_lab.analysis.severity import graded, severity
from plimsoll_lab.report.warning_lines import warning_lines
from plimsoll_lab.store.records import ResultWarning


def warning(code: str) -> ResultWarning:
    return ResultWarning(code=code, message="seen", remedy="wait")


def test_the_gravest_stands_first_and_each_has_its_severity_and_its_trials() -> None:
    found = graded([warning("repeated"), warning("steal"), warning("incomplete")], {"steal": 3})
    assert [(each.code, each.severity, each.trials) for each in found] == [
        ("incomplete", "voids", None),
        ("steal", "widens", 3),
        ("repeated", "note", None),
    ]


def test_a_line_says_how_much_a_warning_matters_with_and_without_colour() -> None:
    found = graded([warning("steal"), warning("incomplete")])
    assert warning_lines(found) == [
        "warning, voids results  incomplete: seen; wait",
        "warning, less certain results  steal: seen; wait",
    ]
    assert warning_lines(found, colour=True)[0].startswith("\x1b[31mwarning, voids results\x1b[0m  incomplete")


def test_a_severity_follows_from_the_code_and_an_unknown_one_widens() -> None:
    codes = {"no_result": "voids", "failed_requests": "voids", "discarded": "note", "steal": "widens", "new": "widens"}
    assert {code: severity(code) for code in codes} == codes


def test_warnings_of_one_severity_keep_their_order_and_their_words() -> None:
    found = graded([warning("steal"), warning("clock"), warning("repeated"), warning("discarded")])
    assert [each.code for each in found] == ["steal", "clock", "repeated", "discarded"]
    assert {(each.message, each.remedy, each.trials) for each in found} == {("seen", "wait", None)}
