"""What differs between the environments of two sides, and which runs have it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from made_records import ENVIRONMENT, run_record

from plimsoll_lab.analysis.environments import differences_between
from plimsoll_lab.store.run_record import EnvironmentRecord


def changed(**fields: object) -> EnvironmentRecord:
    return ENVIRONMENT.model_copy(update=fields)


def unlike(a: Sequence[EnvironmentRecord], b: Sequence[EnvironmentRecord]) -> list[str]:
    """What keeps runs in these environments from being compared; they are numbered from 1."""
    numbers = itertools.count(1)
    record = run_record()
    return differences_between(
        [
            [(f"{next(numbers):04d}", record.model_copy(update={"environment": each})) for each in side]
            for side in (a, b)
        ]
    )


def test_environments_are_held_against_each_other() -> None:
    assert unlike([ENVIRONMENT], [changed(memory="8000100 kB", load_average="3")]) == []
    assert unlike([ENVIRONMENT], [changed(cpus=4)]) == ["cpus: 2 in A, 4 in B"]
    assert unlike([ENVIRONMENT], [changed(cpu_governor=None)]) == ["cpu governor: performance in A, not known in B"]


def test_a_difference_is_told_once_with_the_runs_that_have_it() -> None:
    """It was a line a run, and a run of A that differed from others of A was called one of B."""
    same, larger = ENVIRONMENT, changed(cpus=4)
    assert unlike([same] * 5, [larger] * 5) == ["cpus: 2 in A, 4 in B"]
    assert unlike([same, larger], [same] * 3) == [
        "cpus: 2 in 1 of 2 runs of A (0001) and B, 4 in 1 of 2 runs of A (0002)"
    ]
    (reason,) = unlike([same] * 5, [larger] * 4 + [same])
    assert reason == "cpus: 2 in A and 1 of 5 runs of B (0010), 4 in 4 of 5 runs of B (0006, 0007, 0008 and 1 more)"
    lacking = changed(cpu_governor=None, hypervisor=None, cpus=4)
    assert unlike([same], [lacking]) == ["cpus: 2 in A, 4 in B", "hypervisor, cpu governor: not known in B"]
