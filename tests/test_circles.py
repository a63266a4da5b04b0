"""No two files of one crate, or of the laboratory, need each other: neither directly nor round a
corner.
"""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest

import python_modules
import rust_modules

ROOT = Path(__file__).resolve().parent.parent
CRATES = sorted(path.parent for path in (ROOT / "crates").rglob("src/lib.rs") if "fuzz" not in path.parts)
CRATES += [ROOT / "crates" / "plimsoll" / "src"]
LAB = ROOT / "lab" / "plimsoll_lab"


def circle(edges: Mapping[Path, AbstractSet[Path]]) -> list[str]:
    """The files of one circle, in order, or nothing."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return [str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path) for path in error.args[1]]
    return []


@pytest.mark.parametrize("crate", CRATES, ids=lambda path: path.parent.name)
def test_no_two_files_of_a_crate_need_each_other(crate: Path) -> None:
    edges = rust_modules.graph(crate)
    assert edges, f"{crate} has no source files"
    assert circle(edges) == []


def test_no_two_files_of_the_laboratory_need_each_other() -> None:
    edges = python_modules.graph(LAB)
    assert sum(len(each) for each in edges.values()) > len(edges), "the imports were not found"
    assert circle(edges) == []


def test_a_circle_is_found_through_an_import_inside_a_function(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    one, two, three = (package / f"{name}.py" for name in ("one", "two", "three"))
    one.write_text("from package.two import item\n")
    two.write_text("def item():\n    import package.three\n")
    three.write_text("import os\n")
    assert circle(python_modules.graph(package)) == []
    three.write_text("import importlib\n\none = importlib.import_module('package.one')\n")
    assert sorted(set(circle(python_modules.graph(package)))) == [str(each) for each in (one, three, two)]


def test_a_circle_is_found_through_nested_lists_and_relative_paths(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod one;\nmod two;\n")
    (tmp_path / "one.rs").write_text("use std::io;\nuse crate::{two::{inner::Item, other}};\n")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "mod.rs").write_text(
        "mod inner;\n// use crate::one;\n#[cfg(test)]\nmod tests { use crate::one; }\n"
    )
    (tmp_path / "two" / "inner.rs").write_text("fn item() { super::super::one::call() }\n")
    edges = rust_modules.graph(tmp_path)
    one, inner = tmp_path / "one.rs", tmp_path / "two" / "inner.rs"
    assert edges[one] == {inner, tmp_path / "two" / "mod.rs"}
    assert edges[inner] == {one}
    assert edges[tmp_path / "two" / "mod.rs"] == set()
