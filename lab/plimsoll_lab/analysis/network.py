"""The paths of emulated networks: what was asked of each and what its last calibration measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from plimsoll_lab.store.network_record import CalibrationRecord
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import NetworkPathRecord
from plimsoll_lab.suite.settings import Settings


def paths(run: RunRecord) -> list[NetworkPathRecord]:
    """Every path of the last calibration of each network of a run, with the points that use it."""
    settings = _settings(run)
    return [
        NetworkPathRecord(
            **dict(path),
            setting=_common([settings[number] for number in record.points if number in settings]),
            backend=record.backend,
        )
        for record in latest(run)
        for path in record.paths
    ]


def latest(run: RunRecord) -> list[CalibrationRecord]:
    """The last calibration of each network."""
    return list({tuple(each.points): each for each in run.calibrations}.values())


def congestion_controls(run: RunRecord) -> list[str]:
    """What controlled the congestion of connections between the hosts of a run, by name: one, as a
    rule; none where the run does not tell.
    """
    return sorted({name for record in latest(run) for name in (record.congestion or {}).values()})


def paths_off(run: RunRecord, point: int, trials: Sequence[TrialRecord] = ()) -> str | None:
    """Why the network of a point is not the one that was asked for; None where it is."""
    off = path_off(run, point, trials)
    return None if off is None else f"the network is not what was asked for: {off}"


def path_off(run: RunRecord, point: int, trials: Sequence[TrialRecord] = ()) -> str | None:
    """The first path of a point's network that is not what was asked for, in words. A network is
    calibrated each time it is opened: each calibration counts that a trial of the point followed,
    and the last one.
    """
    cell = _cell(run, point)
    made = [record for record in run.calibrations if cell in record.points]
    begun = [trial.started_unix_s for trial in trials if trial.point == point]
    counts = [any(record.unix_s <= each < after.unix_s for each in begun) for record, after in itertools.pairwise(made)]
    paths = (path for record, each in zip(made, [*counts, True], strict=False) if each for path in record.paths)
    return next((f"from {path.start} to {path.end}, {path.in_words()}" for path in paths if not path.within), None)


def _settings(run: RunRecord) -> dict[int, Settings]:
    """The setting of each cell of the matrix, by the numbers that calibrations name. The points of
    a search are the loads that it tried, and have numbers of their own.
    """
    if run.search is None:
        return {point.number: point.setting for point in run.points}
    return {each.point: each.setting for each in run.searches}


def _cell(run: RunRecord, point: int) -> int | None:
    """The cell of the matrix that a point belongs to."""
    if run.search is None:
        return point
    tried = next((each.setting for each in run.points if each.number == point), {})
    cells = _settings(run).items()
    return next((cell for cell, own in cells if all(tried.get(path) == value for path, value in own.items())), None)


def _common(settings: Sequence[Settings]) -> Settings:
    """What the points of one network have in common of its own settings."""
    if not settings:
        return {}
    own = {key: value for key, value in settings[0].items() if key.startswith("network.")}
    return {key: value for key, value in own.items() if all(each.get(key) == value for each in settings)}
