"""Which loads are confirmed where there is time for no second one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from searched_by_hand import SEARCHED, made, patient


@pytest.mark.parametrize(
    ("patience_s", "carried", "tried", "upper", "finished"),
    [
        # Steps of 0.125, 0.25 and 0.5 lead from 80 to 71, 56 and 37; 60 s are spent when 56 has
        # failed, and there is time for no two: 38 is a width below 56, and no further.
        (170, 50, (80, 71, 56, 38), 56, True),
        # There is time for two: the step is as wide, and rounded down. Then 45 fails.
        (180, 40, (80, 71, 56, 37), 45, True),
        # 75 s are spent when 37 has failed, and the next step is wider than the width: half of 37.
        (185, 30, (80, 71, 56, 37, 18), 37, False),
    ],
)
def test_the_last_load_that_there_is_time_for_is_a_width_below_or_a_step(
    patience_s: float, carried: int, tried: Sequence[int], upper: int, *, finished: bool
) -> None:
    trials, found = made(*patient(patience_s, most=lambda length_s: 100 if length_s < 5 else carried))
    refused = [(load, 5) for load in tried[:-1] for _ in range(2)]
    assert trials[: len(SEARCHED) + len(refused) + 8] == [*SEARCHED, *refused, *[(tried[-1], 5)] * 8]
    assert (found.lower, found.upper, found.confirmed) == (tried[-1], upper, 8)
    assert (found.unconfirmed, found.finished) == (tuple(tried[:-1]), finished)
