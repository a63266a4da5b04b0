"""From what a person asked for to a plan, and from a run's record to the same plan again."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll_lab.problem import LabError
from plimsoll_lab.store.run_record import RequestRecord, RunRecord, SuiteRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.secrets import HIDDEN, redact, secrets_of
from plimsoll_lab.suite.settings import Value
from plimsoll_lab.suite.spec import Plan

CLUSTER = "ray:"
"""How `--hosts` names a cluster: `ray:HEAD:PORT`."""

WHOLE_PATH_FLAGS = {"network.rtt": "--rtt", "network.path_loss": "--loss"}
"""A network in one line: settings that have a flag of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """What a person asked for on the command line, besides the suite itself."""

    suite: str
    """The suite as it was named: a shipped name or a path."""
    changes: Mapping[str, Value] = field(default_factory=dict)
    """`--set`, `--repeat` and `--fast`, as settings by dotted path."""
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """`--only`: the points to keep."""
    fast: bool = False
    """`--fast`: two repetitions, for a look and not for a verdict."""
    out: str = "runs"
    """Where the run's folder is made."""
    hosts: str = ""
    """`--hosts`: `ray:HEAD:PORT` for a cluster; empty for this machine."""
    gate: Sequence[str] = ()
    """The flags of `lab gate`; empty of any other verb."""
    implied: Mapping[str, Value] = field(default_factory=dict)
    """The changes that follow from these flags."""


def make_plan(text: str, *, source: str, directory: str, request: RunRequest, seed: int) -> Plan:
    """Read and expand a suite as it was asked for; a seed in the suite wins over the drawn one."""
    suite = read_text(text, source=source, directory=directory, changes=request.changes, fast=request.fast)
    return expand(
        suite,
        seed=seed if suite.run.seed is None else suite.run.seed,
        only=request.only,
        cluster=request.hosts.startswith(CLUSTER),
    )


def reproducing_command(request: RunRequest, seed: int) -> str:
    """The command that makes the same run again, seed included."""
    words = ["plimsoll", "lab", "gate" if request.gate else "run", request.suite, *request.gate]
    for path, value in request.changes.items():
        if path == "run.seed" or (path in request.implied and request.implied[path] == value):
            continue
        if path == "run.repeat":
            words += ["--repeat", str(value)]
            continue
        if path in WHOLE_PATH_FLAGS:
            words += [WHOLE_PATH_FLAGS[path], str(value)]
            continue
        words += ["--set", f"{path}={_written(value)}"]
    for path, values in request.only.items():
        words += ["--only", f"{path}={','.join(values)}"]
    if request.fast:
        words.append("--fast")
    if request.hosts:
        words += ["--hosts", request.hosts]
    return shlex.join([*words, "--seed", str(seed)])


def _written(value: Value) -> str:
    """A setting as `--set` reads it: what TOML reads as itself needs no quotes."""
    if isinstance(value, tuple):
        return f"[{', '.join(_quoted(each) for each in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    try:
        tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):  # as `--set` reads it
        return value if value == value.strip() else _quoted(value)
    return _quoted(value)


def _quoted(text: str) -> str:
    """A string of JSON, which TOML reads alike."""
    return json.dumps(text, ensure_ascii=False)


def plan_again(record: RunRecord) -> Plan:
    """The plan of a run that has begun, derived anew from its suite and seed."""
    suite, asked = record.suite, record.request
    request = RunRequest(
        suite=asked.suite, changes=asked.changes, only=asked.only, fast=asked.fast, hosts=asked.hosts or ""
    )
    text = suite.text
    if HIDDEN in json.dumps([suite.to_json(), asked.to_json()]):
        text = _text_with_secrets(suite, asked, request)
    plan = make_plan(text, source=suite.source, directory=suite.directory, request=request, seed=record.seed)
    # The trials of a search follow from one another, and are held against the record as they are
    # replayed.
    if plan.suite.search is None and list(plan.trials) != list(record.trials):
        raise LabError(
            "this version of the lab orders the trials otherwise than the version that began the run; "
            "resume with that version"
        )
    return plan


def _text_with_secrets(suite: SuiteRecord, asked: RequestRecord, request: RunRequest) -> str:
    """The suite's own file, which has the secrets that the run's files do not; refused where it has
    changed.
    """
    begin = f"the run was begun with secrets, which its files do not hold; {suite.source}"
    if HIDDEN in json.dumps(asked.to_json()) or not Path(suite.source).is_file():
        raise LabError(f"{begin} does not hold them either; begin a new run")
    text = Path(suite.source).read_text(encoding="utf-8")
    plain = make_plan(text, source=suite.source, directory=suite.directory, request=request, seed=0)
    if redact(text, secrets_of(plain)) != suite.text:
        raise LabError(f"{begin} has changed since; undo the change, or begin a new run")
    return text
