"""The rules of the house, tested from the first day: who may import whom in the laboratory."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parent.parent / "lab" / "plimsoll_lab"

MAY_IMPORT = {
    "suite": {"suite"},
    "stats": {"stats"},
    "store": {"store", "stats", "suite", "problem"},
    "hosts": {"hosts", "problem"},
    "trial": {"trial", "hosts", "stats", "store", "suite", "problem"},
    "analysis": {"analysis", "stats", "store", "suite"},
    "report": {"report", "analysis", "store", "suite"},
    "foreign": {"foreign", "store", "suite", "problem"},
    "experiment": {"experiment", "analysis", "hosts", "stats", "store", "suite", "trial", "problem"},
    "notebook": {"notebook", "analysis", "report", "store", "problem"},
    "web": {"web", "analysis", "report", "store", "problem"},
    "cli": {"cli", "analysis", "experiment", "foreign", "hosts", "report", "stats", "store", "suite", "web", "problem"},
}
"""For each room, the rooms it may import from: `experiment` alone knows `trial`, and nothing
imports `cli`."""

BESIDE_THE_ROOMS = {"__init__.py", "__main__.py", "problem.py"}

OUTSIDE_WORLD = {
    "os",
    "io",
    "pathlib",
    "socket",
    "subprocess",
    "time",
    "datetime",
    "random",
    "secrets",
    "sys",
    "shutil",
}
"""Modules that bring files, processes, clocks or hidden randomness."""


def modules(room: str) -> list[Path]:
    return sorted((LAB / room).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """The modules that a file imports, at its top, inside a function or for types alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            found.add(node.module or "")
            if (node.module or "").startswith("plimsoll_lab"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files_imported(path: Path) -> set[Path]:
    """The files of the laboratory that a file imports; a package counts where it is imported for a
    name of its own.
    """
    found = set()
    for name in imports(path):
        place = LAB.parent.joinpath(*name.split("."))
        if place.with_suffix(".py").is_file():
            found.add(place.with_suffix(".py"))
    return found


def circle(edges: dict[Path, set[Path]]) -> list[str]:
    """A circle among files, as their names in order; empty where there is none."""
    try:
        tuple(graphlib.TopologicalSorter(edges).static_order())
    except graphlib.CycleError as found:
        return [str(each) for each in found.args[1]]
    return []


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    assert modules(room), f"{room} is an empty room"
    for path in modules(room):
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("plimsoll_lab.")}
        ours -= {"__version__"}
        assert ours <= MAY_IMPORT[room], f"{path.relative_to(LAB)} imports {sorted(ours - MAY_IMPORT[room])}"


def test_every_room_has_a_rule() -> None:
    rooms = {path.name for path in LAB.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms == set(MAY_IMPORT)


def test_nothing_stands_beside_the_rooms() -> None:
    assert {path.name for path in LAB.glob("*.py")} == BESIDE_THE_ROOMS


def test_the_wheel_holds_every_room() -> None:
    project = tomllib.loads((LAB.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {path.parent for path in LAB.rglob("*.py")}
    packages = {".".join(path.relative_to(LAB.parent).parts) for path in folders} | {"plimsoll_lab.suites"}
    assert set(project["tool"]["setuptools"]["packages"]) == packages


def test_no_files_of_the_laboratory_import_each_other_in_a_circle() -> None:
    edges = {path: files_imported(path) for path in LAB.rglob("*.py")}
    assert sum(len(each) for each in edges.values()) > len(edges), "the imports were not found"
    assert circle(edges) == [], "each file imports the next"


def test_a_circle_of_two_files_is_found() -> None:
    one, other = Path("one.py"), Path("other.py")
    assert sorted(set(circle({one: {other}, other: {one}}))) == ["one.py", "other.py"]
    assert circle({one: {other}, other: set()}) == []


def test_statistics_know_no_file_no_clock_and_no_hidden_randomness() -> None:
    for path in modules("stats"):
        names = {name.split(".")[0] for name in imports(path)}
        assert not names & OUTSIDE_WORLD, f"{path.relative_to(LAB)} imports {sorted(names & OUTSIDE_WORLD)}"


def test_the_program_starts_with_one_thread() -> None:
    """unshare(2) refuses a user namespace to a process of several; numpy starts some as it is
    loaded.
    """
    script = "import os, plimsoll_lab.cli.program; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "1\n"


def test_the_guard_runs_without_the_rest_of_the_lab() -> None:
    assert not any(name.startswith("plimsoll_lab") for name in imports(LAB / "hosts" / "guard.py"))
