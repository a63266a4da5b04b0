"""What the limits of a suite ask of each trial. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll_lab.suite.conditions import OPERATORS
from plimsoll_lab.suite.spec import Limit, Suite


def judged_figures(suite: Suite) -> frozenset[str]:
    """The figures that a trial is judged by: figures with limits, and the figure that shows a
    search over a rate a growing backlog (Little's law).
    """
    over_a_rate = suite.search is not None and suite.search.key == "rate"
    return frozenset(limit.figure for limit in suite.limits) | ({"response_time_us.mean"} if over_a_rate else set())


def asks_at_most(suite: Suite) -> bool:
    """Whether it is a search all of whose limits are met by what a late generator shows, if the
    server meets less: upper ones, of response times and failures of the load itself.
    """
    bounded = all(
        each.operator.startswith("<") and each.figure.startswith(("response_time_us.", "failed_ratio", "requests."))
        for each in suite.limits
    )
    return suite.search is not None and bounded


def missed_limits(limits: Sequence[Limit], told: Mapping[str, float]) -> frozenset[str]:
    """The figures that are told and do not meet their limit."""
    here = (limit for limit in limits if limit.figure in told)
    return frozenset(each.figure for each in here if not OPERATORS[each.operator](told[each.figure], each.value))
