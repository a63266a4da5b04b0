"""A run's folder: its number taken atomically, every record written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from plimsoll_lab.problem import BEGIN_AGAIN, FULL, GOES_ON, USAGE, LabError
from plimsoll_lab.store.faults import faults_of, list_named_figures
from plimsoll_lab.store.form import Form, record_of
from plimsoll_lab.store.records import SCHEMA_VERSION, TrialRecord
from plimsoll_lab.store.run_record import RunRecord

DIGITS = 4
MOST_NEGATIVE, MOST = -(2**63), 2**64 - 1
"""The whole numbers that programs print: of the lab's own, none is greater."""
LOOKED_AT_S = 0.1
"""A look at whether a run is locked takes the lock for microseconds; a lab at work keeps it."""
PARTS = frozenset(
    {
        "trials",
        "null",
        "attempts",
        "records",
        "captures",
        "timelines",
        "requests",
        "connections",
        "charts",
        "hgrm",
        "events.jsonl",
        "report.html",
        "run.json.tmp",
    }
)
"""What a run's folder holds beside its record: each folder, and each file but those of exports."""


def _as_it_is(record: object) -> object:
    return record


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFolder:
    """One run on disk."""

    path: Path
    """Where it is."""
    hide: Callable[[object], object] = _as_it_is
    """Takes the secrets out of a record before it is written."""

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @property
    def events(self) -> Path:
        """The events of the run while it was under way, for a live view."""
        return self.path / "events.jsonl"

    def captures(self) -> Path:
        """Where packets are kept."""
        folder = self.path / "captures"
        folder.mkdir(exist_ok=True)
        return folder.resolve()

    def records(self, trial: int) -> Path:
        """An empty folder for the files that the parts of a trial write."""
        folder = self.path / "records" / f"{trial:0{DIGITS}d}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder.resolve()

    def trial_file(self, trial: int, kind: str = "trials") -> Path:
        """The record of a trial."""
        return self.path / kind / f"{trial:0{DIGITS}d}.json"

    def write_run(self, record: RunRecord) -> None:
        """Write the run's own record."""
        path, text = self.path / "run.json", json.dumps(self.hide(record.to_json()), indent=1, ensure_ascii=False)
        # Without a record there is no run yet that could go on.
        write_atomically(path, text + "\n", then=GOES_ON if path.exists() else BEGIN_AGAIN)

    def read_run(self) -> RunRecord:
        """The run's own record."""
        path = self.path / "run.json"
        record = _check(path, RunRecord)
        fault = next(faults_of(record), None)
        if fault is not None:
            raise damaged(path, fault)
        list_named_figures(record)
        return record

    def write_trial(self, trial: TrialRecord) -> None:
        """Write one trial; once this returns it survives a crash."""
        self._write_trial("trials", trial)

    def read_trials(self) -> list[TrialRecord]:
        """Every trial there is, in order."""
        return self._read_trials("trials")

    def write_null_trial(self, trial: TrialRecord) -> None:
        """Write a trial of the generator against a null server: no result, but what results are
        held against.
        """
        (self.path / "null").mkdir(exist_ok=True)
        self._write_trial("null", trial)

    def read_null_trials(self) -> list[TrialRecord]:
        """Every trial against a null server, in order."""
        return self._read_trials("null")

    def keep_attempt(self, trial: TrialRecord) -> None:
        """Keep a measurement whole that is made again: the next one takes its place among the
        trials.
        """
        (self.path / "attempts").mkdir(exist_ok=True)
        path = self.trial_file(trial.number, "attempts")
        self._write(path.with_stem(f"{path.stem}-{len(trial.attempts) + 1}"), trial)

    def _write_trial(self, kind: str, trial: TrialRecord) -> None:
        self._write(self.trial_file(trial.number, kind), trial)

    def _write(self, path: Path, trial: TrialRecord) -> None:
        write_atomically(path, json.dumps(self.hide(trial.to_json()), ensure_ascii=False) + "\n")

    def _read_trials(self, kind: str) -> list[TrialRecord]:
        found = []
        # Of more than 9,999 trials some numbers are longer.
        for path in sorted((self.path / kind).glob("*.json"), key=lambda each: (len(each.stem), each.stem)):
            trial = _check(path, TrialRecord)
            if path != self.trial_file(trial.number, kind):
                raise damaged(path, f"number: {trial.number} is another trial's")
            found.append(trial)
        return found

    def trial_numbers(self) -> set[int]:
        """The numbers of the trials there are."""
        return {int(file.stem) for file in (self.path / "trials").glob("*.json") if file.stem.isdigit()}

    def count_trials(self) -> int:
        """How many trials there are."""
        return len(self.trial_numbers())

    def is_locked(self) -> bool:
        """Whether a lab works on it at this moment."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def status(self, record: RunRecord) -> str:
        """The status of its record, where a run that no program works on is `killed` and not
        `running`.
        """
        return "killed" if record.status == "running" and not self.is_locked() else record.status

    def remove(self) -> None:
        """Remove it for good; first its record, so that after a crash the rest is no run, then its
        other files, and at last its trials, so that `remains_in` finds the rest. Of a link to a
        run, the link alone.

        Raises `OSError` where something may not be removed.
        """
        if self.path.is_symlink():
            self.path.unlink()
            return
        with self.lock():
            (self.path / "run.json").unlink(missing_ok=True)
            folders = []
            for each in self.path.iterdir():
                if each.is_symlink() or not each.is_dir():
                    each.unlink()
                else:
                    folders.append(each)
            for each in sorted(folders, key=lambda folder: folder.name == "trials"):
                shutil.rmtree(each)
            self.path.rmdir()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Only one lab at a time works on a run; the kernel releases the lock when the lab ends."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            deadline = time.monotonic() + LOOKED_AT_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise LabError(
                            f"{self.path}: another lab is working on this run; wait until it has ended"
                        ) from None
                    time.sleep(LOOKED_AT_S / 10)
            yield
        finally:
            os.close(descriptor)


def new_run(out: Path, hide: Callable[[object], object] = _as_it_is) -> RunFolder:
    """Take the next free number below `out`: mkdir either makes the folder or fails, so two labs
    never share one.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        while True:
            path = out / f"{max(_numbers(out), default=0) + 1:0{DIGITS}d}"
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                (path / "trials").mkdir()
                return RunFolder(path=path, hide=hide)
    except OSError as error:
        raise LabError(f"cannot make a run in {out}: {error.strerror}; choose another folder with --out") from None


def open_run(path: Path) -> RunFolder:
    """An existing run."""
    if not (path / "run.json").is_file():
        raise LabError(f"{path} is no run: it has no run.json; 'plimsoll lab list' shows the runs", exit_code=USAGE)
    return RunFolder(path=path)


def refuse_twice(runs: Sequence[RunFolder]) -> None:
    """Raise `LabError` where a run, or a measurement that was imported, is among some twice: it
    would be taken for two.
    """
    for path, times in Counter(each.path.resolve() for each in runs).items():
        if times > 1:
            raise LabError(f"{path} is named {times} times; a run counts once, and on one side", exit_code=USAGE)
    first: dict[str, Path] = {}
    for run in runs:
        imported = run.read_run().imported
        for file in imported.files if imported is not None else ():
            if (before := first.setdefault(file.sha256, run.path)) is not run.path:
                raise LabError(
                    f"{run.path} and {before} hold the same measurement, {file.name}; it counts once, and on one side",
                    exit_code=USAGE,
                )


def list_runs(out: Path) -> list[RunFolder]:
    """Every run below `out`, the oldest first."""
    return [folder for folder in _numbered(out) if _is_run(folder.path)]


def runs_in(out: Path) -> list[RunFolder]:
    """Every run below a folder that a person named; raises `LabError` where there is no such
    folder.
    """
    if not out.is_dir():
        raise LabError(f"there is no folder {out}; name the folder with the runs, such as --out runs", exit_code=USAGE)
    return list_runs(out)


def remains_in(out: Path) -> list[RunFolder]:
    """What is left below `out` of runs without a record, the oldest first: the disk was full as
    they began, or a lab was killed as it removed them. A folder that holds anything else than the
    parts of a run is none of ours, nor is one that has other parts and no trials.
    """
    return [folder for folder in _numbered(out) if _is_rest(folder.path)]


def read_each(
    folders: Iterable[RunFolder], wanted: Callable[[RunRecord], bool], unread: list[str]
) -> Iterator[tuple[RunFolder, RunRecord, list[TrialRecord]]]:
    """The runs whose record is wanted, with their trials. Why a run cannot be read is added to
    `unread`, and the others are read all the same.
    """
    for folder in folders:
        try:
            record = folder.read_run()
            if not wanted(record):
                continue
            trials = folder.read_trials()
        except LabError as reason:
            unread.append(str(reason))
        else:
            yield folder, record, trials


def write_atomically(path: Path, text: str, *, then: str = GOES_ON) -> None:
    """Write a file so that it is either the old or the new one, whatever happens, and the new one
    once this returns. Raises `LabError` where the disk refuses it; `then` is what to do once that
    is corrected.
    """
    with replacing(path, then=then) as draft:
        draft.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path, *, then: str = GOES_ON) -> Iterator[Path]:
    """The same of a file that is written otherwise: a draft beside it, to be written in the block,
    at whose end it takes the file's place.
    """
    draft = path.with_name(path.name + ".tmp")
    try:
        # In a run that somebody else made it may be a link to another file.
        draft.unlink(missing_ok=True)
        yield draft
        _sync(draft)
        draft.replace(path)
        _sync(path.parent)
    except OSError as error:
        mend = "free some space there" if error.errno in FULL else "correct that"
        raise LabError(f"cannot write {path}: {error.strerror}; {mend}, then {then}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _numbered(out: Path) -> list[RunFolder]:
    """The folders below `out` whose names are those of runs, by number."""
    if not out.is_dir():
        return []
    return [RunFolder(path=out / f"{number:0{DIGITS}d}") for number in sorted(_numbers(out))]


def _numbers(out: Path) -> set[int]:
    # Each once: 1 and 0001 may both be there.
    return {int(child.name) for child in out.iterdir() if child.name.isdigit() and child.is_dir()}


def _is_run(path: Path) -> bool:
    try:
        return (path / "run.json").is_file()
    except PermissionError:
        return True  # its record says so as it is read


def _is_rest(path: Path) -> bool:
    try:
        names = {each.name for each in path.iterdir()}
        return not path.is_symlink() and names <= PARTS and (not names or "trials" in names)
    except OSError:
        return False


def _read(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
        record = json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
    except OSError as error:
        raise LabError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from None
    version = record.get("schema_version") if isinstance(record, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise _newer(path, f"its schema version is {version}, and this lab reads {SCHEMA_VERSION}")
    if version != SCHEMA_VERSION:
        raise damaged(path, f"its schema version is {version}, and this lab reads {SCHEMA_VERSION}")
    return record


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text} is too great a number")
    return found


def _whole(text: str) -> int:
    found = int(text)
    if not MOST_NEGATIVE <= found <= MOST:
        raise ValueError(f"{text} is too great a number")
    return found


def _check(path: Path, form: type[Form]) -> Form:
    """The record of a file, in its form, which damage or another lab may have spoilt."""
    record = _read(path)
    try:
        return record_of(form, record)
    except ValidationError as error:
        errors = error.errors()
        # Damage takes keys away or spoils values. A key that is too much was written on purpose.
        unknown = next((each for each in errors if each["type"] == "extra_forbidden"), None)
        if unknown is not None:
            raise _newer(path, f"this lab does not know {_where(unknown)}") from None
        raise damaged(path, f"{_where(errors[0])}: {errors[0]['msg']}") from None


def _where(error: ErrorDetails) -> str:
    return ".".join(str(each) for each in error["loc"])


def _newer(path: Path, evidence: str) -> LabError:
    return LabError(f"{path}: was written by a newer version of Plimsoll ({evidence}); update this one")


def damaged(path: Path, evidence: str) -> LabError:
    """The refusal of a damaged record, with the evidence. The remedy depends on the record: a run
    without its own is none.
    """
    is_run = path.name == "run.json"
    remedy = (
        "restore it from a copy, or begin a new run"
        if is_run
        else "remove it, and 'plimsoll lab resume' measures it again"
    )
    return LabError(f"{path}: is damaged ({evidence}); {remedy}")
