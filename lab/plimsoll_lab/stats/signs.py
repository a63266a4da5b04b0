"""The random signs that blocks get where two contenders do not differ: all patterns of them, or
some drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sign_patterns(count: int, blocks: int) -> Array:
    """The first patterns of all, a row each; the later half of all are mirrors of the first."""
    return np.asarray((np.arange(count)[:, None] >> np.arange(blocks) & 1) * 2.0 - 1.0)


def drawn_signs(count: int, blocks: int, rng: np.random.Generator) -> Array:
    """Patterns at random, a row each."""
    return rng.choice(np.array([-1.0, 1.0]), size=(count, blocks))
