"""The rules of the house, tested from the first day: who may import whom in the laboratory."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parent.parent / "lab" / "plimsoll_lab"

MAY_IMPORT = {
    "suite": {"suite"},
    "stats": {"stats"},
    "samplers": {"samplers"},
    "store": {"store", "problem"},
    "hosts": {"hosts", "samplers", "problem"},
    "trial": {"trial", "hosts", "samplers", "store", "suite", "problem"},
    "report": {"report", "store", "stats", "problem"},
}
"""For each room, the rooms it may import from. What stands beside the rooms ties them together, and may import all."""

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
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "plimsoll_lab"}
    return found


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


def test_statistics_know_no_file_no_clock_and_no_hidden_randomness() -> None:
    for path in modules("stats"):
        names = {name.split(".")[0] for name in imports(path)}
        assert not names & OUTSIDE_WORLD, f"{path.relative_to(LAB)} imports {sorted(names & OUTSIDE_WORLD)}"


def test_the_guard_runs_without_the_rest_of_the_lab() -> None:
    assert not any(name.startswith("plimsoll_lab") for name in imports(LAB / "hosts" / "guard.py"))
