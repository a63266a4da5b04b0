"""What a bend of a curve says of itself."""

from __future__ import annotations

import pytest

from plimsoll_lab.stats.results import Bound


@pytest.mark.parametrize(
    ("reached", "saturated", "shown"),
    [(True, False, True), (True, True, False), (False, False, False), (False, True, False)],
)
def test_a_bend_is_shown_by_loads_on_both_of_its_sides(*, reached: bool, saturated: bool, shown: bool) -> None:
    bound = Bound(
        most_rate=1000.0, idle_response_s=0.01, think_s=0.0, at=10.0, at_ci95=None, reached=reached, lowest=1.0,
        saturated=saturated,
    )  # fmt: skip
    assert bound.is_shown is shown
