"""The arguments that name a suite and change it, and the plan they ask for."""

from __future__ import annotations

import argparse
import secrets
import shlex
import tomllib
from collections.abc import Mapping, Sequence

from plimsoll_lab.experiment.plan import CLUSTER, WHOLE_PATH_FLAGS, RunRequest, make_plan
from plimsoll_lab.suite import shipped
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.settings import Value
from plimsoll_lab.suite.spec import Plan


def add_suite_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the suite and what changes it."""
    parser.add_argument("suite", metavar="SUITE", help="a TOML file, or the name of a suite that ships with Plimsoll")
    parser.add_argument("--repeat", type=int, metavar="N", help="repetitions of each point (default: the suite's)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATH=VALUE[,VALUE]", help="only these points (default: all)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change a setting")
    parser.add_argument(
        "--rtt", metavar="TIME", help="run over an emulated network: the round trip of its whole path, such as 50ms"
    )
    parser.add_argument("--loss", metavar="PART", help="the part of the packets that the path loses, such as 1%%")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of the random order of trials (default: the suite's, or drawn)"
    )
    parser.add_argument(
        "--hosts",
        default="",
        metavar="WHERE",
        help="local or netns, as the suite's [network] has it, or ray:HEAD:PORT, a Ray cluster that this machine is "
        "part of (default: as the suite has it)",
    )
    parser.add_argument(
        "--fast", action="store_true", help="the suite's [fast] form, or 2 repetitions: for a look, not for a verdict"
    )


def read_plan(options: argparse.Namespace, further: Mapping[str, Value] | None = None) -> tuple[Plan, RunRequest]:
    """Read and expand the suite as it was asked for; `further` are settings by dotted path."""
    path = shipped.find(options.suite)
    changes: dict[str, Value] = {**(further or {}), **read_settings(options.set)}
    for setting, flag in WHOLE_PATH_FLAGS.items():
        asked = getattr(options, flag.removeprefix("--"))
        if asked is not None:
            changes[setting] = asked
    if options.repeat is not None:
        changes["run.repeat"] = options.repeat
    if options.seed is not None:
        changes["run.seed"] = options.seed
    only: dict[str, list[str]] = {}
    for text in options.only:
        key, value = _assignment("--only", text)
        only.setdefault(key, []).extend(value.split(","))
    request = RunRequest(
        suite=options.suite,
        changes=changes,
        only=only,
        fast=options.fast,
        out=getattr(options, "out", ""),
        hosts=options.hosts if options.hosts.startswith(CLUSTER) else "",
    )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: cannot read the suite: {error}") from None
    plan = make_plan(
        text, source=str(path), directory=str(path.resolve().parent), request=request, seed=secrets.randbits(32)
    )
    _refuse_other_hosts(plan, options.hosts)
    return plan, request


def words_of(flag: str, command: str) -> tuple[str, ...]:
    """The words of a command that a flag states as one text."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as refusal:
        raise SuiteError(f"{flag} {command}: {str(refusal).lower()}; write it as a shell would read it") from None
    if not words:
        raise SuiteError(f"{flag}: the command is empty; write a program and its arguments")
    return words


def read_settings(texts: Sequence[str]) -> dict[str, Value]:
    """The settings of `--set`, by dotted path."""
    return {key: _toml_value(value) for key, value in (_assignment("--set", text) for text in texts)}


def _refuse_other_hosts(plan: Plan, hosts: str) -> None:
    """Refuse `local` or `netns` where the suite's [network] says the other."""
    networks = any(point.network is not None for point in plan.points)
    if hosts == "local" and networks:
        raise SuiteError(f"{plan.suite.source}: --hosts local: the suite has a [network]; remove it from the suite")
    if hosts == "netns" and not networks:
        raise SuiteError(f"{plan.suite.source}: --hosts netns: the suite has no [network]; add one to the suite")
    if hosts not in {"", "local", "netns"} and not hosts.startswith(CLUSTER):
        raise SuiteError(f"--hosts {hosts}: write local, netns or ray:HEAD:PORT")


def _assignment(flag: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise SuiteError(f"{flag} {text}: write {flag} PATH=VALUE, such as {flag} load.connections=2500")
    return key.strip(), value.strip()


def _toml_value(text: str) -> Value:
    """`2500` is a number and `true` a truth value, as in the file; anything else is a text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # digits by the thousand, or brackets within each other
        return text
    if isinstance(value, list):
        return tuple(str(each) for each in value)
    return value if isinstance(value, str | int | float | bool) else text
