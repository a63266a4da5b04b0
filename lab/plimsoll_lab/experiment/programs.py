"""The programs that a suite names itself: which of them a machine lacks, and the digests of their
files, as trials of a server that was built anew are not like those before.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from plimsoll_lab.hosts.ray_cluster import RayCluster
from plimsoll_lab.suite.settings import Settings, texts
from plimsoll_lab.suite.spec import Plan, Point
from plimsoll_lab.trial.testbed import Machines, names_of

DIGITS = 12
"""Of a digest, as it is shown."""


def programs_of(plan: Plan, machines: Machines) -> dict[str, str]:
    """The SHA-256 of the program and of the script of each command, by the file's path; on a
    cluster the host stands before it. Raises `NoHost` where a cluster has too few.
    """
    parts = {
        (name, texts(settings, "command"))
        for point in plan.points
        for name, settings in (
            (point.place.server, point.server),
            *((role.on, role.settings) for role in point.roles),
        )
        if "command" in settings
    }
    if not isinstance(machines, RayCluster):
        commands = {command for _, command in parts}
        return _sorted(*(machines.program_digests(_filled(command, plan)) for command in commands))
    hosts = machines.place(tuple(dict.fromkeys(name for point in plan.points for name in names_of(point))))
    return _sorted(
        *(
            {f"{name}:{path}": digest for path, digest in hosts[name].program_digests(_filled(command, plan)).items()}
            for name, command in parts
            if name is not None
        )
    )


def changed_programs(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Each file that is not what it was, in words."""
    return [
        f"{path} was {_shown(before.get(path))} and is {_shown(now.get(path))}"
        for path in sorted({*before, *now})
        if before.get(path) != now.get(path)
    ]


def _filled(command: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
    return tuple(word.replace("{dir}", plan.suite.directory) for word in command)


def _sorted(*found: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted((path, digest) for each in found for path, digest in each.items()))


def _shown(digest: str | None) -> str:
    return "not there" if digest is None else f"SHA-256 {digest[:DIGITS]}"


PROGRAM_REMEDY = "install it, make it executable (chmod +x), or correct the command"
"""What to do about a program that a suite starts and the machine has not."""


def settings_of(point: Point) -> list[Settings]:
    """Of each role of a point."""
    return [role.settings for role in point.roles]


def missing_programs(plan: Plan) -> list[str]:
    """The program of each command of a plan that this machine lacks, as the suite names it."""
    started = (each for point in plan.points for each in (point.server, *settings_of(point)))
    words = (texts(each, "command")[0].replace("{dir}", plan.suite.directory) for each in started if "command" in each)
    return [word for word in dict.fromkeys(words) if "{" not in word and shutil.which(word) is None]
