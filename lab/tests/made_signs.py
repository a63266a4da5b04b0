"""Six blocks, whose 32 patterns of signs can be counted by hand.

The deviations are +-1, +-2 and +-3: their squares sum to 28. A pattern of signs that makes them sum
to S has a mean of S / 6 and a variance of (28 - S^2 / 6) / 5. S is 12 in one pattern, 10 in two
(one of the ones turned), and less in the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from plimsoll_lab.stats.resampling import PairLogs

DEVIATIONS = [1.0, -1.0, 2.0, -2.0, 3.0, -3.0]


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


COUNTS = {12: 1, 10: 2, 8: 3, 6: 6, 4: 7, 2: 8, 0: 5}
"""How many patterns sum to S or -S, a pattern and its mirror counted once: S is 12 less twice what
is turned, of 1, 1, 2, 2, 3 and 3."""


def t_of(total: float) -> float:
    """Student's t of the pattern whose deviations sum to this."""
    return total / 6 * math.sqrt(6) / math.sqrt((28 - total**2 / 6) / 5)


ERROR = math.sqrt(28 / 5 / 6)
"""The standard error of the deviations' mean."""


def logs_of(values: Sequence[float], shared: Sequence[bool] = (True,) * 6) -> PairLogs:
    series = np.array(values)
    return PairLogs(names=("a", "b"), shared=np.array(shared), low=series, high=series)
