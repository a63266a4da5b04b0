"""Reasons and numbers as they are written in them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plimsoll_lab.stats.reasons import Toward, counted, percent, significant, usual_reason


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (["it died."], "it died."),
        (["it died.", "it died."], "it died."),
        # Where each differs, as by a number, the first stands for them.
        (["1 failed", "2 failed", "3 failed"], "1 failed"),
        (["it died.", "it hung", "it died."], "it died (mostly)"),
        (["it hung", "it died..", "it died..", "it hung"], "it hung (among others)"),
        (["..it died..", "a", "b", "..it died.."], "..it died (among others)"),
        (["a", "b", "b", "b", "c", "d"], "b (among others)"),
        ([None, None, "a"], None),
        ([None], None),
    ],
)
def test_the_reason_that_most_gave_stands_for_all(reasons: Sequence[str | None], said: str | None) -> None:
    assert usual_reason(reasons) == said


def test_of_one_there_is_one_and_of_others_several() -> None:
    assert [counted(each, "trial") for each in (0, 1, 2, 1400)] == ["0 trials", "1 trial", "2 trials", "1,400 trials"]


def test_a_part_has_one_decimal_unless_asked_otherwise() -> None:
    assert [percent(0.0723), percent(0.0723, 0), percent(0.0723, 2), percent(-1e-9)] == [
        "7.2 %", "7 %", "7.23 %", "0.0 %",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "toward", "said"),
    [
        (123_456_789, "nearest", "123,000,000"),
        (123_456_789, "up", "124,000,000"),
        (123_999_999, "down", "123,000,000"),
        (9.999, "nearest", "10.0"),
        (9.991, "up", "10.0"),
        (10.01, "down", "10.0"),
        (9.999, "down", "9.99"),
        (-1.234, "down", "-1.24"),
        (-1.236, "up", "-1.23"),
        # A float's last digits are none: 0.1 + 0.2 is 0.3.
        (0.1 + 0.2, "up", "0.300"),
        (1.23 * (1 + 1e-10), "up", "1.24"),
        (0, "up", "0"),
    ],
)
def test_three_figures_are_rounded_to_the_side_that_is_asked_for(value: float, toward: Toward, said: str) -> None:
    assert significant(value, toward) == said
