"""What differs between the environments of two sides, and which runs have it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from made_records import ENVIRONMENT, run_record

from plimsoll_lab.analysis.environments import changes_of_machine, differences_between
from plimsoll_lab.store.run_record import DescriptorLimits, EnvironmentRecord, HostRecord, RunRecord
from plimsoll_lab.suite.spec import RunSettings


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


def test_a_property_that_three_values_have_is_told_with_each_of_them() -> None:
    """One of which is not known, beside another property that is not known in the same run."""
    lacking = changed(cpu_governor=None, hypervisor=None)
    saving = changed(cpu_governor="powersave")
    assert unlike([ENVIRONMENT], [lacking, saving]) == [
        "hypervisor: yes in A and 1 of 2 runs of B (0003), not known in 1 of 2 runs of B (0002)",
        "cpu governor: performance in A, not known in 1 of 2 runs of B (0002), powersave in 1 of 2 runs of B (0003)",
    ]


def test_a_memory_that_differs_by_a_fiftieth_is_the_same() -> None:
    """2 % of 8,163,265 kB are 163,265.3."""
    assert unlike([ENVIRONMENT], [changed(memory="8163265 kB")]) == []
    assert unlike([changed(memory="8163265 kB")], [ENVIRONMENT]) == []
    assert unlike([ENVIRONMENT], [changed(memory="8163266 kB")]) == ["memory: 8000000 kB in A, 8163266 kB in B"]
    assert unlike([ENVIRONMENT], [changed(memory=None)]) == ["memory: 8000000 kB in A, not known in B"]
    assert unlike([changed(memory=None)], [changed(memory=None)]) == []


def test_what_has_parts_is_told_with_each_of_them() -> None:
    more = DescriptorLimits(soft=2048, hard=20_000)
    assert unlike([ENVIRONMENT], [changed(open_files_limit=more)]) == [
        "open files limit: soft 1024, hard 20000 in A, soft 2048, hard 20000 in B"
    ]


def test_runs_on_a_cluster_are_held_against_each_other_by_the_hosts_that_measured() -> None:
    """The lab's own machine was the same in both, and a server on more CPUs was called better."""

    def on(**hosts: EnvironmentRecord) -> RunRecord:
        records = [
            HostRecord(
                name=name, address=name, called=(), labels={}, machine=name, versions={}, environment=each.to_json()
            )
            for name, each in hosts.items()
        ]
        return run_record().model_copy(update={"hosts": records})

    def told(a: RunRecord, b: RunRecord) -> list[str]:
        return differences_between([[("0001", a)], [("0002", b)]])

    small, large, nearly = ENVIRONMENT, changed(cpus=8), changed(memory="8000100 kB")
    two = on(h1=small, h2=small)
    assert told(two, on(h1=nearly, h2=small)) == []
    assert told(two, on(h1=large, h2=large)) == ["cpus: 2 in A, 8 in B"]
    assert told(two, on(h1=large, h2=small)) == ["cpus: 2 in A, h1 8, h2 2 in B"]
    assert told(on(h1=large, h2=small), on(h1=large, h2=nearly)) == []
    assert told(on(h1=large, h2=small), on(h1=small, h2=large)) == ["cpus: h1 8, h2 2 in A, h1 2, h2 8 in B"]
    # Hosts like the machine that runs on emulated ones use are like it.
    assert told(two, run_record()) == []


def test_runs_that_warmed_up_otherwise_are_unlike() -> None:
    record = run_record()
    cold, warm = (record.model_copy(update={"settings": RunSettings(warm_up=each)}) for each in (None, "1s"))
    assert differences_between([[("0001", cold)], [("0002", warm)]]) == ["warm-up: none in A, 1s in B"]
    assert differences_between([[("0001", warm)], [("0002", warm)]]) == []


def test_three_runs_of_a_side_are_named_and_of_more_the_rest_is_counted() -> None:
    larger = changed(cpus=4)
    of_b = unlike([ENVIRONMENT], [larger] * 3 + [ENVIRONMENT])
    assert of_b == ["cpus: 2 in A and 1 of 4 runs of B (0005), 4 in 3 of 4 runs of B (0002, 0003, 0004)"]
    more = unlike([ENVIRONMENT], [larger] * 5 + [ENVIRONMENT])
    assert more == ["cpus: 2 in A and 1 of 6 runs of B (0007), 4 in 5 of 6 runs of B (0002, 0003, 0004 and 2 more)"]


def test_what_of_a_machine_has_changed_is_told_in_words() -> None:
    """What the record before does not tell has not changed, and what belongs to a process or to a
    namespace is nothing of the machine.
    """
    abacus = changed(cpu="an abacus")
    assert changes_of_machine(ENVIRONMENT, abacus) == []
    assert changes_of_machine(abacus, ENVIRONMENT) == ["the CPU was an abacus and is not known"]
    limits = DescriptorLimits(soft=1, hard=2)
    own = changed(open_files_limit=limits, metering="proc", somaxconn="1", tcp_congestion_control="bbr")
    assert changes_of_machine(ENVIRONMENT, own) == changes_of_machine(own, ENVIRONMENT) == []
    assert changes_of_machine(ENVIRONMENT, changed(memory="8160000 kB")) == []
    assert changes_of_machine(ENVIRONMENT, changed(memory="8170000 kB", system="Linux 6.2")) == [
        "the kernel was Linux 6.1 and is Linux 6.2",
        "the memory was 8000000 kB and is 8170000 kB",
    ]
