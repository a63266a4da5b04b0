"""The paths of emulated networks, as their last calibration found them, and who uses them."""

from __future__ import annotations

from made_records import calibration_record, run_record

from plimsoll_lab.analysis import network
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import PointRecord, RunRecord
from plimsoll_lab.store.search_record import SearchRecord, SearchSettingsRecord
from plimsoll_lab.suite.settings import Settings


def run_of(*settings: Settings) -> RunRecord:
    run = run_record()
    run.points = [
        PointRecord(number=number, setting=setting, server={}, load={}) for number, setting in enumerate(settings)
    ]
    return run


def test_a_network_is_what_its_last_calibration_found() -> None:
    """Each is measured again as a run is resumed."""
    run = run_of({}, {}, {})
    run.calibrations = [
        calibration_record([0, 1], off=0.5),
        calibration_record([2], within=True),
        calibration_record([0, 1], off=0.2),
    ]
    assert network.latest(run) == [run.calibrations[2], run.calibrations[1]]
    found = network.paths(run)
    assert [(each.start, each.end, each.off.round_trip, each.backend) for each in found] == [
        ("h1", "h2", 0.2, "tap"),
        ("h1", "h2", 0.09, "tap"),
    ]
    why = "the network is not what was asked for: from h1 to h2, a round trip of 12.000 ms for 10.000 ms asked"
    assert [network.paths_off(run, point) for point in (0, 1, 2, 3)] == [why, why, None, None]


def test_a_calibration_counts_whose_trials_are_part_of_the_run() -> None:
    """A run that was resumed on a quiet machine had been measured over another network before, and
    none of its figures was doubtful.
    """
    run = run_of({}, {})
    run.calibrations = [
        calibration_record([0, 1]).model_copy(update={"unix_s": 10.0}),
        calibration_record([0, 1], within=True).model_copy(update={"unix_s": 20.0}),
    ]
    before, after, other = (
        TrialRecord(
            number=1, block=1, point=point, setting={}, outcome="ok", reason=None, warnings=(),
            started_unix_s=started_unix_s, elapsed_s=1, figures={}, server={}, load={}, machine={},
        )
        for point, started_unix_s in ((0, 15.0), (0, 25.0), (1, 15.0))
    )  # fmt: skip
    assert network.paths_off(run, 0, [before, after]) is not None
    assert network.paths_off(run, 0, [after, other]) is None, "no trial of the point followed it"
    assert network.paths_off(run, 1, [after, other]) is not None


def test_the_first_path_that_is_off_is_named() -> None:
    run = run_of({})
    near, far = (calibration_record([0], within=within) for within in (True, False))
    other = far.paths[0].model_copy(update={"start": "h3", "end": "h4"})
    run.calibrations = [near.model_copy(update={"paths": [near.paths[0], other, far.paths[0]]})]
    assert str(network.paths_off(run, 0)).startswith("the network is not what was asked for: from h3 to h4, ")
    assert len(network.paths(run)) == 3


def test_a_path_has_those_of_the_networks_settings_that_all_its_points_share() -> None:
    run = run_of(
        {"network.rtt": "5ms", "network.loss": "1%", "load.connections": 10},
        {"network.rtt": "5ms", "network.loss": "2%", "load.connections": 10},
        {"load.connections": 10},
    )
    run.calibrations = [
        calibration_record([0, 1]),
        calibration_record([2]),
        calibration_record([0, 7]),
        calibration_record([9]),
    ]
    assert [each.setting for each in network.paths(run)] == [
        {"network.rtt": "5ms"},
        {},
        {"network.rtt": "5ms", "network.loss": "1%"},
        {},
    ]


def test_a_load_of_a_search_uses_the_network_of_the_setting_that_it_was_tried_for() -> None:
    run = run_of(*({"network.rtt": rtt, "load.rate": rate} for rtt in ("5ms", "50ms") for rate in (100, 200)))
    run.search = SearchSettingsRecord(over="load.rate", lowest=1, highest=10)
    run.searches = [
        SearchRecord(number=cell + 1, block=1, point=cell, state="complete", setting={"network.rtt": rtt})
        for cell, rtt in enumerate(("5ms", "50ms"))
    ]
    run.calibrations = [calibration_record([0], within=True), calibration_record([1])]
    assert [network.paths_off(run, number) is None for number in range(4)] == [True, True, False, False]
    assert network.paths_off(run, 9) is None, "a point that the run does not have"
    assert [each.setting for each in network.paths(run)] == [{"network.rtt": "5ms"}, {"network.rtt": "50ms"}]


def test_what_controls_congestion_is_told_once_by_name() -> None:
    run = run_of({})
    one, other, untold = calibration_record([0]), calibration_record([1]), calibration_record([2])
    run.calibrations = [
        one.model_copy(update={"congestion": {"h1": "reno", "h2": "cubic"}}),
        other.model_copy(update={"congestion": {"h1": "cubic"}}),
        untold,
    ]
    assert network.congestion_controls(run) == ["cubic", "reno"]
    run.calibrations = [untold]
    assert network.congestion_controls(run) == []
