"""Who limited a search follows from evidence: outcomes, the generator's ceiling, a null server."""

from __future__ import annotations

import pytest

from plimsoll_lab.analysis.limiter import NullMisses, who_limited
from plimsoll_lab.store.records import Outcome


def meets(_only_limits: bool) -> bool:  # noqa: FBT001 - as it is called
    return False


def misses(_only_limits: bool) -> bool:  # noqa: FBT001 - as it is called
    return True


def never_asked(_only_limits: bool) -> bool:  # noqa: FBT001 - as it is called
    raise AssertionError("the evidence was enough")


OK: list[Outcome] = ["ok"] * 3
LATE: list[Outcome] = ["generator_limited"] * 3
BUSY: list[Outcome] = ["invalid"] * 3
DEAD: list[Outcome] = ["failed"] * 3
EVIDENCE: dict[str, tuple[list[Outcome], float | None, float | None, NullMisses, str]] = {
    "the server misses its limit far below the ceiling": (OK, 10_000, 100_000, meets, "server"),
    "a slow server whose generator calls itself late": (LATE, 3_153, 120_000, never_asked, "server"),
    "a generator that is late near its ceiling": (LATE, 70_000, 100_000, never_asked, "generator"),
    "a generator that is late, and no ceiling is known": (LATE, 3_153, None, never_asked, "generator"),
    "a busy machine near the ceiling": (BUSY, 60_000, 100_000, never_asked, "environment"),
    "a busy machine far below the ceiling": (BUSY, 3_153, 120_000, never_asked, "environment"),
    "a busy machine, and one late trial": (
        ["invalid", "generator_limited", "invalid"],
        3_153,
        None,
        never_asked,
        "environment",
    ),
    "the rate is nearly the ceiling": (OK, 85_000, 100_000, never_asked, "generator"),
    "the null server misses the limits too": (OK, 60_000, 100_000, misses, "generator"),
    "a limit too tight for the generator at any rate": (OK, 1_000, 100_000, misses, "generator"),
    "a server that fails": (DEAD, 10_000, 100_000, meets, "server"),
    "nothing was completed at the lower bound": (OK, None, 100_000, meets, "server"),
    "one late trial of three": (["generator_limited", "ok", "ok"], 60_000, 100_000, meets, "server"),
}


@pytest.mark.parametrize("case", EVIDENCE)
def test_who_limited_a_search_follows_from_the_evidence(case: str) -> None:
    outcomes, rate, ceiling, null_misses, who = EVIDENCE[case]
    found, near = who_limited(outcomes, rate=rate, ceiling=ceiling, null_misses=null_misses)
    assert found == who
    assert near is None or found == "generator", "the sentence never contradicts the finding"


def test_where_server_and_generator_use_up_one_machine_that_is_the_limit() -> None:
    """Of nginx it was said that it carries 119,333/s, and wrk2 got 160,000/s from it there: the
    server used 0.92 of two CPUs, and the generator the rest.
    """
    assert who_limited(OK, rate=60_000, ceiling=100_000, null_misses=meets, crowded=True)[0] == "environment"
    # What the generator cannot do with any server is its own limit.
    assert who_limited(OK, rate=60_000, ceiling=100_000, null_misses=misses, crowded=True)[0] == "generator"
    assert who_limited(OK, rate=85_000, ceiling=100_000, null_misses=never_asked, crowded=True)[0] == "generator"
    # A server of 256 threads took the CPU that the generator wanted: "the server", and "what breaks
    # first: generator limited", 50 ms late at less than half of what it can.
    assert who_limited(LATE, rate=75_000, ceiling=190_000, null_misses=never_asked, crowded=True)[0] == "environment"


def test_how_near_the_ceiling_the_generator_was_is_said() -> None:
    _, near = who_limited(["ok"], rate=85_000, ceiling=100_000, null_misses=never_asked)
    assert near == "85 % of what the generator gets from a null server"


def test_far_below_the_ceiling_only_a_stated_limit_counts_against_the_generator() -> None:
    asked: list[bool] = []

    def noted(only_limits: bool) -> bool:  # noqa: FBT001 - as it is called
        asked.append(only_limits)
        return False

    for rate in (10_000, 60_000):
        who_limited(["ok"], rate=rate, ceiling=100_000, null_misses=noted)
    assert asked == [True, False]


MISSED = "the generator misses the limits against a null server too"


@pytest.mark.parametrize(
    ("outcomes", "rate", "null_misses", "found"),
    [
        # Half of what the generator gets is room for no more than that: its own word counts.
        (LATE, 50_000, never_asked, ("generator", None)),
        (LATE, 49_999, never_asked, ("server", None)),
        # From 80 % on it is at its ceiling, whatever its trials said.
        (OK, 80_000, never_asked, ("generator", "80 % of what the generator gets from a null server")),
        (OK, 79_999, meets, ("server", None)),
        (OK, 79_999, misses, ("generator", MISSED)),
        # Half of the trials are not most of them; of as many of both kinds the generator is blamed.
        (["generator_limited", "ok"], 60_000, meets, ("server", None)),
        (["invalid", "ok"], 60_000, meets, ("server", None)),
        (["generator_limited", "invalid", "ok"], 60_000, never_asked, ("generator", None)),
        (["generator_limited", "invalid", "invalid", "ok"], 60_000, never_asked, ("environment", None)),
        ([], 60_000, meets, ("server", None)),
    ],
)
def test_where_one_limit_ends_and_the_next_begins(
    outcomes: list[Outcome], rate: float, null_misses: NullMisses, found: tuple[str, str | None]
) -> None:
    assert who_limited(outcomes, rate=rate, ceiling=100_000, null_misses=null_misses) == found


@pytest.mark.parametrize(("rate", "ceiling"), [(None, 100_000), (0.0, 100_000), (60_000, None), (60_000, 0.0)])
def test_without_a_rate_or_a_ceiling_the_generator_is_asked_of_every_limit(
    rate: float | None, ceiling: float | None
) -> None:
    asked: list[bool] = []

    def noted(only_limits: bool) -> bool:  # noqa: FBT001 - as it is called
        asked.append(only_limits)
        return True

    assert who_limited(OK, rate=rate, ceiling=ceiling, null_misses=noted) == ("generator", MISSED)
    assert asked == [False]


def test_rates_below_one_a_second_are_rates() -> None:
    near = "90 % of what the generator gets from a null server"
    assert who_limited(OK, rate=0.45, ceiling=0.5, null_misses=never_asked) == ("generator", near)
