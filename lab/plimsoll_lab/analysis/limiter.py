"""Who ended the rise of a search: the server, the generator or the machine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plimsoll_lab.stats.reasons import percent
from plimsoll_lab.store.records import Outcome
from plimsoll_lab.store.search_record import LimitedBy

NEAR_CEILING = 0.8
"""Above this part of what the generator gets from a null server, the generator may be the limit."""
FAR_BELOW_CEILING = 0.5
"""Below this part of what it gets from a null server, the generator has room for as much again."""

NullMisses = Callable[[bool], bool]
"""Whether the generator misses the limits at the upper bound against a null server too; the
argument says that only a stated limit counts, and no growth of the backlog."""


def held_up(rate: float | None, ceiling: float | None) -> str:
    """What it means that a generator was late although the server was the limit."""
    near = f", at {percent(rate / ceiling, 0)} of what it gets from a null server" if rate and ceiling else ""
    return f"the server holds up its generator, which is late{near}"


def who_limited(
    outcomes: Sequence[Outcome],
    *,
    rate: float | None,
    ceiling: float | None,
    null_misses: NullMisses,
    crowded: bool = False,
) -> tuple[LimitedBy, str | None]:
    """What the limit was, and how near the generator was to its own limit, where that was it.

    `outcomes` are those of the bad trials at the upper bound, `rate` what the lower bound completed
    and `ceiling` what the generator gets from a null server, in requests a second. `crowded`
    says whether its machine had hardly any CPU left, and the generator used a good part of it.
    """
    late, disturbed = outcomes.count("generator_limited"), outcomes.count("invalid")
    suspect = 2 * (late + disturbed) > len(outcomes)
    if suspect and disturbed > late:
        return "environment", None
    # A generator far below what it gets from a null server is not the limit, whatever it says of
    # itself.
    far_below = bool(ceiling and rate and rate < FAR_BELOW_CEILING * ceiling)
    if suspect and not far_below:
        return "generator", None
    if ceiling and rate and rate >= NEAR_CEILING * ceiling:
        return "generator", f"{percent(rate / ceiling, 0)} of what the generator gets from a null server"
    # Far below its ceiling the generator keeps the rate; only a limit may be too tight for it. The
    # growth of a backlog in a short window is a matter of one request then.
    if not suspect and null_misses(far_below):
        return "generator", "the generator misses the limits against a null server too"
    if crowded:
        # With a generator elsewhere the server would have had more, and the generator too.
        return "environment", None
    return "server", None
