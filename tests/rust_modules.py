"""The Rust sources as a graph: which file names an item of which other file of its crate."""

from __future__ import annotations

import re
from pathlib import Path

ModulePath = tuple[str, ...]

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
NAMED = re.compile(r"\b(crate|super|self)((?:::\w+)*)(?:::(\{))?")
"""A path from the crate's root, or relative to a module, up to an item or to a brace that opens a
list of items."""
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{")


def module_of(source: Path, root: Path) -> ModulePath:
    """The module that a file is, as its path below the crate's root; the root itself is empty."""
    parts = source.relative_to(root).with_suffix("").parts
    return parts[:-1] if parts[-1] in {"mod", "lib", "main"} else parts


def listed(text: str, begin: int) -> list[ModulePath]:
    """The paths in a braced list of a `use`, whose brace opens before `begin`; nested lists
    included.
    """
    found: list[ModulePath] = []
    stack: list[ModulePath] = [()]
    for token in re.finditer(r"(\w+)((?:::\w+)*)(::\{)?|\}", text[begin:]):
        if token[0] == "}":
            stack.pop()
            if not stack:
                break
            continue
        path = (*stack[-1], token[1], *token[2].split("::")[1:])
        if token[3]:
            stack.append(path)
        else:
            found.append(path)
    return found


def named_modules(text: str, module: ModulePath, modules: dict[ModulePath, Path]) -> set[ModulePath]:
    """The modules of its own crate that a file takes items from."""
    found = set()
    for match in NAMED.finditer(text):
        start, rest, brace = match.groups()
        steps = [step for step in rest.split("::") if step]
        base: ModulePath = {"crate": (), "super": module[:-1], "self": module}[start]
        while steps and steps[0] == "super":
            base, steps = base[:-1], steps[1:]
        endings = listed(text, match.end()) if brace else [()]
        for ending in endings:
            whole = (*base, *steps, *ending)
            while whole not in modules:
                whole = whole[:-1]
            found.add(whole)
    return found - {module}


def graph(root: Path) -> dict[Path, set[Path]]:
    """For each source file below a crate's `src`, the files whose items it names. Tests are left
    out.

    A module and the modules inside it count as one way only: what a child takes from its parent.
    That the parent declares the child, and passes its items on, is how a folder of modules is
    written.
    """
    sources = [
        path for path in sorted(root.rglob("*.rs")) if not path.stem.endswith("tests") and "tests_" not in path.stem
    ]
    modules = {module_of(source, root): source for source in sources}
    edges: dict[Path, set[Path]] = {}
    for module, source in modules.items():
        text = source.read_text(encoding="utf-8")
        test = TEST_MODULE.search(text)
        text = COMMENT.sub("", text[: test.start()] if test else text)
        named = named_modules(text, module, modules)
        edges[source] = {modules[other] for other in named if other[: len(module)] != module}
    return edges
