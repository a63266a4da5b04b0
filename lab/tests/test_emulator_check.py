"""Up to which packet rate the emulator is in time, and what that says of a suite."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plimsoll_lab.cli.emulator_check import check_emulator, judge
from plimsoll_lab.hosts.link_rate import RATES, KeptRate, Step, highest
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.spec import Plan

SUITE = 'name = "it"\nquestion = "?"\n[server]\n[load]\nduration = "1s"\n'


def plan(network: str) -> Plan:
    return expand(read_text(SUITE + network, source="it.toml", directory="."), seed=1)


def steps(amiss: Callable[[float, int], int], most_sent: float = 1e9) -> Callable[[float], Step]:
    """An emulator that is late for so many packets of a rate, by its attempt, and what can be
    sent.
    """
    attempts = dict.fromkeys(RATES, 0)

    def tried(rate: float) -> Step:
        attempts[int(rate)] += 1
        late = amiss(rate, attempts[int(rate)])
        return Step(asked_per_s=rate, sent_per_s=min(rate, most_sent), packets=5000, amiss=late)

    return tried


def test_the_highest_rate_is_the_last_one_that_is_kept_in_one_of_two_attempts() -> None:
    assert highest(steps(lambda rate, _: 11 if rate > 40_000 else 10)) == KeptRate(per_s=40_000, by_sender=False)
    disturbed_once = steps(lambda rate, attempt: 5000 if attempt == 1 or rate > 20_000 else 0)
    assert highest(disturbed_once) == KeptRate(per_s=20_000, by_sender=False)
    assert highest(steps(lambda _rate, _attempt: 5000)) == KeptRate(per_s=0, by_sender=False)


def test_what_could_not_be_sent_is_no_limit_of_the_emulator() -> None:
    assert highest(steps(lambda _rate, _attempt: 0)) == KeptRate(per_s=RATES[-1], by_sender=True)
    assert highest(steps(lambda _rate, _attempt: 0, most_sent=60_000)) == KeptRate(per_s=60_000, by_sender=True)


@pytest.mark.parametrize(
    ("network", "found", "level", "said"),
    [
        # 100 Mbit/s of full frames are 8,256 a second, and 4,128 acknowledgements.
        ('rate = "100Mbit"\n', 40_000, "ok", "up to 40,000 packets/s here, and a full path of the suite has 12,384"),
        ('rate = "1Gbit"\n', 40_000, "warn", "and a full path of the suite has 123,844"),
        ('delay = "1ms"\n', 40_000, "ok", "up to 40,000 packets/s here; a path of the suite has no rate that bounds"),
        ('rate = "100Mbit"\n', 0, "warn", "late or loses packets at the lowest packet rate tried"),
    ],
)
def test_a_suite_that_may_ask_more_is_warned_with_both_figures(
    network: str, found: float, level: str, said: str
) -> None:
    points = plan('[network]\ntopology = "single,2"\n' + network).points
    finding = judge(KeptRate(per_s=found, by_sender=False), points)
    assert finding.level == level
    assert said in finding.message
    assert bool(finding.fix) == (level == "warn")


def test_what_was_sent_at_most_warns_of_nothing_and_without_a_suite_the_figure_stands_alone() -> None:
    points = plan('[network]\ntopology = "single,2"\nrate = "1Gbit"\n').points
    limited = judge(KeptRate(per_s=40_000, by_sender=True), points)
    assert limited.level == "ok"
    assert "which is all that could be sent, and a full path" in limited.message
    assert judge(KeptRate(per_s=40_000, by_sender=False), ()).message.endswith("up to 40,000 packets/s here")


def test_a_suite_without_the_emulator_measures_nothing() -> None:
    assert list(check_emulator(plan(""))) == []
    assert list(check_emulator(plan('[network]\ntopology = "single,2"\nbackend = "kernel"\n'))) == []
