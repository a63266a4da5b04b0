"""The rules of the house, tested from the first day: who may import whom in the laboratory."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from python_modules import called, imports

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
"""For each room, the rooms it may import from: `experiment` alone imports `trial`, and nothing
imports `cli`."""

BESIDE_THE_ROOMS = {"__init__.py": set(), "__main__.py": {"cli"}, "problem.py": set()}
"""For each file beside the rooms, the rooms that it may import from."""

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

OUTSIDE_CALLS = {"open", "print", "input"}
"""Built-in functions that read or write files."""


def modules(room: str) -> list[Path]:
    return sorted((LAB / room).rglob("*.py"))


def rooms_imported(path: Path) -> set[str]:
    """The rooms, and the files beside them, that a file imports from."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("plimsoll_lab.")} - {"__version__"}


def impure_calls(path: Path) -> list[str]:
    """The calls of a file that reach files, or draw numbers without a seed, as lines of text."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    return [
        f"{path.name}:{call.lineno}: {ast.unparse(call)}"
        for call in calls
        if (isinstance(call.func, ast.Name) and call.func.id in OUTSIDE_CALLS)
        or (called(call) == "default_rng" and not call.args)
        or (ast.unparse(call.func).startswith(("np.random.", "numpy.random.")) and called(call) != "default_rng")
    ]


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    assert modules(room), f"{room} is an empty room"
    for path in modules(room):
        beyond = rooms_imported(path) - MAY_IMPORT[room]
        assert not beyond, f"{path.relative_to(LAB)} imports {sorted(beyond)}"


def test_every_room_has_a_rule() -> None:
    rooms = {path.name for path in LAB.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms == set(MAY_IMPORT)


def test_nothing_stands_beside_the_rooms() -> None:
    assert {path.name for path in LAB.glob("*.py")} == BESIDE_THE_ROOMS.keys()


@pytest.mark.parametrize("name", sorted(BESIDE_THE_ROOMS))
def test_a_file_beside_the_rooms_imports_only_what_it_may(name: str) -> None:
    assert rooms_imported(LAB / name) <= BESIDE_THE_ROOMS[name]


def test_the_wheel_holds_every_room() -> None:
    project = tomllib.loads((LAB.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {path.parent for path in LAB.rglob("*.py")}
    packages = {".".join(path.relative_to(LAB.parent).parts) for path in folders} | {"plimsoll_lab.suites"}
    assert set(project["tool"]["setuptools"]["packages"]) == packages


def test_statistics_know_no_file_no_clock_and_no_hidden_randomness() -> None:
    for path in modules("stats"):
        names = {name.split(".")[0] for name in imports(path)}
        assert not names & OUTSIDE_WORLD, f"{path.relative_to(LAB)} imports {sorted(names & OUTSIDE_WORLD)}"
        assert impure_calls(path) == []


def test_calls_that_read_files_or_draw_without_a_seed_are_found(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("np.random.default_rng(7)\nopen('x')\nnp.random.default_rng()\nnp.random.normal()\n")
    assert [each.partition(": ")[2] for each in impure_calls(file)] == [
        "open('x')",
        "np.random.default_rng()",
        "np.random.normal()",
    ]


def test_the_program_starts_with_one_thread() -> None:
    """unshare(2) refuses a user namespace to a process of several; numpy starts some as it is
    loaded.
    """
    script = "import os, plimsoll_lab.cli.program; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "1\n"


def test_the_guard_runs_without_the_rest_of_the_lab() -> None:
    assert not any(name.startswith("plimsoll_lab") for name in imports(LAB / "hosts" / "guard.py"))
