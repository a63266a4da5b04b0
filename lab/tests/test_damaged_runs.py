"""Stored runs that are damaged: whatever reads one answers, or says what is damaged."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Done, lab_here, run_lab
from made_records import calibration_record, stored_run

from plimsoll_lab.analysis.knees import AXIS as CONNECTIONS
from plimsoll_lab.problem import LabError
from plimsoll_lab.store.folder import RunFolder, open_run
from plimsoll_lab.web import pages

DRAWN = os.environ.get("PLIMSOLL_DAMAGES", "20")
"""How many damages of each run are tried, or `all`: `make soak` tries every one."""
GONE = object()
"""In place of a value: its key is missing."""
VALUES: Sequence[object] = (GONE, None, -1, 0, 10**30, 1e300, math.nan, [], {}, "", "x", True)
ALIKE = 8
"""Of more values of one kind beside one another, the first and the last are damaged."""

SUITES = {
    "gate": """
name = "gate"
question = "Which one?"
[server]
protocol = "http"
[load]
protocol = "http"
path = "/"
duration = "20ms"
[contender.old]
model = "select"
[contender.new]
model = "epoll"
[matrix]
"load.connections" = [100, 200, 400]
[limits]
"response_time.p99" = "< 50ms"
"statuses.404" = "== 0"
[verdict]
baseline = "old"
tolerance = "5%"
control = true
[expect]
"connections.established" = "== load.connections"
[[chart]]
figure = "completed_rate"
over = "load.connections"
[[reference]]
at = { "contender" = "new", "load.connections" = 100 }
source = "A report"
figure = "completed_rate"
value = 2000
[[claim]]
name = "new is faster"
source = "A report"
figure = "completed_rate"
at = { "contender" = "new", "load.connections" = 100 }
over = { "contender" = "old", "load.connections" = 100 }
expect = "> 1"
[run]
repeat = 1
seed = 7
""",
    "search": """
name = "search"
question = "How many?"
[server]
model = "epoll"
[load]
duration = "20ms"
[limits]
"response_time.p99" = "< 1s"
[search]
over = "load.connections"
range = [10, 5000]
trials = 3
hold = "0s"
[matrix]
"server.model" = ["select", "epoll"]
[run]
repeat = 1
seed = 7
""",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """Another value at one place of a record."""

    file: Path
    """The record, below the folder of the run."""
    place: tuple[str | int, ...]
    """Where in it."""
    value: object
    """What is there instead."""

    def of(self, text: str) -> str:
        """The record with it."""
        record = json.loads(text)
        at = record
        for key in self.place[:-1]:
            at = at[key]
        if self.value is GONE:
            del at[self.place[-1]]
        else:
            at[self.place[-1]] = copy.copy(self.value)
        return json.dumps(record)


def places(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a record, but those of what is alike."""
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    if len(items) > ALIKE and len({type(each) for _, each in items}) == 1:
        items = [items[0], items[-1]]
    for key, each in items:
        yield (*place, key)
        yield from places(each, (*place, key))


def damages(run: Path) -> list[Damage]:
    """Every one of a run's record and of a trial's."""
    files = [run / "run.json", *sorted(run.glob("trials/*.json"))[:1], *sorted(run.glob("null/*.json"))[:1]]
    every = [
        Damage(file=file.relative_to(run), place=place, value=value)
        for file in files
        for place, value in itertools.product(places(json.loads(file.read_text())), VALUES)
    ]
    return every if DRAWN == "all" else random.Random(7).sample(every, int(DRAWN))


def commands(run: str, other: str) -> list[tuple[str, ...]]:
    """Whatever reads a stored run."""
    return [
        ("report", run),
        ("report", run, "--json", "--export", "csv,json,md,openmetrics,hgrm,parquet"),
        ("compare", run, other),
        ("compare", other, run, "--json"),
        ("list",),
        ("list", "--json"),
        ("query", "SELECT * FROM runs, points, trials LIMIT 9"),
        ("prune", "--keep", "0"),
        ("resume", run),
    ]


def call(folder: Path, arguments: Sequence[str]) -> Done:
    """Run a command; `resume` on a copy, and in a process of its own, as it measures what it finds
    missing.
    """
    if arguments[0] != "resume":
        return lab_here(folder, *arguments)
    shutil.copytree(folder / "runs", folder / "again" / "runs")
    done = run_lab(folder / "again", *arguments)
    shutil.rmtree(folder / "again")
    return done


def read_all(run: RunFolder) -> None:
    """Read its records."""
    run.read_run()
    run.read_trials()
    run.read_null_trials()


def shown(folder: Path, suite: str) -> list[Callable[[], str]]:
    """The pages of `lab serve`."""
    runs = folder / "runs"
    return [
        lambda: pages.run_list(runs, {}),
        lambda: pages.live(open_run(runs / "0001")),
        lambda: pages.history(runs, suite),
    ]


def faults_of(folder: Path, suite: str, drawn: random.Random) -> list[str]:
    """What ends in an internal error, of everything that reads the run; of a sample, one command
    and one page.
    """
    called, viewed = commands("runs/0001", "runs/0002"), shown(folder, suite)
    if DRAWN != "all":
        called, viewed = [drawn.choice(called)], [drawn.choice(viewed)]
    found = []
    for arguments in called:
        done = call(folder, arguments)
        if not is_clear(done):
            found.append(f"{' '.join(arguments)}: {done.returncode} {done.stderr}")
    for view in viewed:
        try:
            view()
        except LabError:
            pass
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            found.append(f"a page: {type(error).__name__}: {error}")
    return found


def is_clear(done: Done) -> bool:
    """Whether a command answered, or said in a line what is wrong."""
    if done.returncode in {0, 3, 4}:
        return True
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return done.returncode in {1, 2, 5} and len(errors) <= 1 and "internal error" not in done.stderr


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of each suite, in a folder each."""
    folder = tmp_path_factory.mktemp("stored")
    for name, text in SUITES.items():
        (folder / name).mkdir()
        (folder / name / "suite.toml").write_text(text)
        done = run_lab(folder / name, "run", "suite.toml", "--json")
        assert done.returncode in {0, 3, 4}, done.stderr
        shutil.copytree(folder / name / "runs/0001", folder / name / "runs/0002")
    return folder


@pytest.mark.parametrize("suite", SUITES)
def test_no_damage_of_a_stored_run_is_an_internal_error(stored: Path, tmp_path: Path, suite: str) -> None:
    shutil.copytree(stored / suite, tmp_path, dirs_exist_ok=True)
    run, drawn, found = tmp_path / "runs/0001", random.Random(7), []
    for damage in damages(run):
        file = run / damage.file
        text = file.read_text()
        file.write_text(damage.of(text))
        with contextlib.suppress(LabError):  # refused as it is read: whatever reads it says so
            read_all(open_run(run))
            said = "missing" if damage.value is GONE else repr(damage.value)
            place = f"{damage.file}: {'.'.join(map(str, damage.place))}: {said}"
            found += [f"{place}: {fault}" for fault in faults_of(tmp_path, suite, drawn)]
        file.write_text(text)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema_version": NaN}', "NaN is no number of JSON"),
        ('{"schema_version": -Infinity}', "-Infinity is no number of JSON"),
        ('{"schema_version": 1, "elapsed_s": 1e400}', "1e400 is too great a number"),
        ('{"schema_version": 1, "number": 1000000000000000000000}', "1000000000000000000000 is too great a number"),
        ('{"schema_version": 1, "number": 18446744073709551616}', "18446744073709551616 is too great a number"),
        ('{"schema_version": 1, "number": -9223372036854775809}', "-9223372036854775809 is too great a number"),
        ("[" * 100_000, "recursion"),
        ('{"schema_version": 1', "Expecting"),
    ],
)
def test_a_record_is_json_of_finite_numbers(tmp_path: Path, text: str, said: str) -> None:
    """Means of what is not a number, or of too great ones, were internal errors."""
    folder = stored_run(tmp_path / "0001")
    (folder.path / "trials/0001.json").write_text(text)
    with pytest.raises(LabError, match="is damaged") as refusal:
        folder.read_trials()
    assert said in str(refusal.value)


def test_a_trial_has_the_number_of_its_file(tmp_path: Path) -> None:
    """A trial was counted twice of which there was a copy."""
    folder = stored_run(tmp_path / "0001")
    shutil.copy(folder.path / "trials/0001.json", folder.path / "trials/0002.json")
    with pytest.raises(LabError, match=r"0002\.json: is damaged \(number: 1 is another trial's\)"):
        folder.read_trials()


FAMILY: dict[str, object] = {"compare": None, "figures": [], "margin": 0.05, "baseline": None, "tolerance": 0.0}
STATUS = "statuses.404"
OFF = json.loads(json.dumps(calibration_record([0]).to_json()))
OFF["paths"][0]["measured"]["round_trip_us"] = {"min": 1.0}
PLACE = {"server.model": "epoll"}
REFERENCE: dict[str, object] = {"figure": STATUS, "at": PLACE, "value": 1.0, "source": "A report", "text": ""}
CLAIM: dict[str, object] = {
    "name": "Nothing is missing",
    "source": "A report",
    "figure": STATUS,
    "at": PLACE,
    "over": None,
    "against": None,
    "least": 0.0,
    "most": 1.0,
    "expect": "<= 1",
    "free": "",
    "portable": True,
}


@pytest.mark.parametrize(
    "change",
    [
        {"family": {**FAMILY, "compare": "server.model", "figures": [STATUS]}},
        {"limits": [{"figure": STATUS, "operator": "==", "value": 0, "text": f"{STATUS} == 0"}]},
        {"drawn": [[STATUS, "server.model"]]},
        {"references": [REFERENCE]},
        {"claims": [CLAIM]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_run_of_an_earlier_version_may_name_a_figure_that_it_does_not_list(
    tmp_path: Path, change: dict[str, object]
) -> None:
    """It was an internal error of whatever looked for the figure's unit."""
    for name in ("a", "b"):
        folder = stored_run(tmp_path / name, ("epoll", "poll"))
        record = folder.read_run().to_json() | change
        (folder.path / "run.json").write_text(json.dumps(record))
    for verb in (("compare", "a", "b"), ("report", "b", "--json"), ("report", "b"), ("list", "--out", ".")):
        done = lab_here(tmp_path, *verb)
        assert done.returncode in {0, 4}, done.stderr
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 2}, "newer version of Plimsoll (its schema version is 2, and this lab reads 1); update"),
        ({"tomorrow": 1}, "newer version of Plimsoll (this lab does not know tomorrow); update"),
        ({"seed": "x"}, "is damaged (seed: "),
        ({"seed": -1}, "is damaged (seed: -1 is below 0)"),
        ({"started_unix_s": 1e300}, "is damaged (started_unix_s: Input should be less than 253402300800)"),
        (
            {"limits": [{"figure": "completed_rate", "operator": "~", "value": 1, "text": "~1"}]},
            "is damaged (limits.0.operator: '~' is none of ",
        ),
        (
            {"family": {**FAMILY, "compare": "server.modle"}},
            "is damaged (points.0.setting: server.modle is missing, along which contenders are compared)",
        ),
        (
            {
                "family": {**FAMILY, "compare": "server.model"},
                "search": {"over": "load.rate", "lowest": 1, "highest": 2},
                "searches": [{"number": 1, "block": 1, "point": 0, "state": "complete", "setting": {}}],
            },
            "is damaged (searches.0.setting: server.model is missing, along which contenders are compared)",
        ),
        (
            {"searches": [{"number": 1, "block": 1, "point": 0, "state": "complete"}]},
            "is damaged (search: is missing, and there are searches)",
        ),
        (
            {"calibrations": [OFF]},
            "is damaged (calibrations.0.paths.0.measured.round_trip_us: p50 is missing)",
        ),
        ({"search": {"over": "x", "lowest": 1, "highest": 2}}, "is damaged (search.over: 'x' is none of load.connect"),
        ({"family": {**FAMILY, "margin": -1}}, "is damaged (family.margin: -1 is not above 0)"),
        ({"family": {**FAMILY, "margin": 0}}, "is damaged (family.margin: 0 is not above 0)"),
        ({"family": {**FAMILY, "figures": ["speed"]}}, "is damaged (family.figures.0: 'speed' is no figure)"),
        ({"drawn": [["speed", CONNECTIONS]]}, "is damaged (drawn.0.0: 'speed' is no figure)"),
        ({"references": [{**REFERENCE, "figure": "speed"}]}, "is damaged (references.0.figure: 'speed' is no figure)"),
        ({"claims": [{**CLAIM, "figure": "speed"}]}, "is damaged (claims.0.figure: 'speed' is no figure)"),
        ({"schema_version": None}, "is damaged (its schema version is None"),
    ],
)
def test_a_record_of_a_newer_version_is_told_from_damage(tmp_path: Path, change: dict[str, object], said: str) -> None:
    folder = stored_run(tmp_path / "0001")
    file = folder.path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(LabError) as refusal:
        folder.read_run()
    assert said in str(refusal.value)
    assert "measures it again" not in str(refusal.value), "resume makes trials, and no run.json"
