"""The sources of the laboratory as a graph: which file imports which other."""

from __future__ import annotations

import ast
from pathlib import Path

DYNAMIC_IMPORTS = {"import_module", "__import__"}


def imports(path: Path) -> set[str]:
    """The modules that a file imports: at its top, inside a function, for types alone, or by a name
    in quotes.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            found.add(node.module or "")
            if (node.module or "").startswith("plimsoll_lab"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and called(node) in DYNAMIC_IMPORTS:
            name = node.args[0]
            assert isinstance(name, ast.Constant), f"{path}:{node.lineno}: an import by a name that is not written here"
            found.add(str(name.value))
    return found


def called(node: ast.Call) -> str:
    """The name of the function that is called, without what it is a part of."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def graph(package: Path) -> dict[Path, set[Path]]:
    """For each file of a package, the files that it imports; a folder's `__init__.py` counts where
    it is imported for a name of its own.
    """
    edges = {}
    for path in sorted(package.rglob("*.py")):
        places = (package.parent.joinpath(*name.split(".")).with_suffix(".py") for name in imports(path))
        edges[path] = {place for place in places if place.is_file()}
    return edges
