"""The sources of the laboratory as a graph: which file imports which other."""

from __future__ import annotations

import ast
from pathlib import Path


def imports(path: Path) -> set[str]:
    """The modules that a file imports: at its top, inside a function or for types alone."""
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


def graph(package: Path) -> dict[Path, set[Path]]:
    """For each file of a package, the files that it imports; a folder's `__init__.py` counts where
    it is imported for a name of its own.
    """
    edges = {}
    for path in sorted(package.rglob("*.py")):
        places = (package.parent.joinpath(*name.split(".")).with_suffix(".py") for name in imports(path))
        edges[path] = {place for place in places if place.is_file()}
    return edges
