"""Mutants of the laboratory's statistics and analysis, made and run by mutmut: each is a small
change of the code, and some test has to notice it.

mutmut knows code in src/ and writes beside it. So the code and its tests are copied to
target/mutants, where it works; what it has found stays there, and a run that was stopped goes on.
After a change of the code or of its tests, `--anew` begins anew. Tests that start the laboratory as
a process would see the code without its mutants, and are left out. Mutants are run in the order of
their tests' time.

A module that is named has a folder of its own, and only the tests that import it: minutes instead
of a night. What the tests of other modules would notice besides is not counted then.

    python bench/mutants.py stats                 every module of the room; about a night
    python bench/mutants.py stats knee summary    some modules of it, each by its own tests
    python bench/mutants.py stats --list          how many died, and those that live
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from harness import ROOT

WORK = ROOT / "target" / "mutants"
ROOMS = ("stats", "analysis")
EVERY = "*"
CONFIGURATION = """
[tool.mutmut]
source_paths = ["src/plimsoll_lab"]
only_mutate = ["src/plimsoll_lab/{room}/{module}.py"]
also_copy = ["conftest.py", "lab", "docs", "suites"]
pytest_add_cli_args_test_selection = [{tests}]
use_git_change_detection = false
# A mutant that never ends is given up after five times the time of its tests, by default fifteen.
timeout_multiplier = 5.0

[tool.pytest.ini_options]
pythonpath = ["src", "lab/tests"]
addopts = "--strict-markers -q -m 'not measures' -p no:cacheprovider"
markers = ["measures: holds on a machine that does nothing else", "long: takes minutes"]
# mutmut runs pytest several times in one process, where the last run's folders end late.
filterwarnings = ["error", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"]
"""
LEFT_OUT = """
def fixtures(test):
    given = test.callspec.params if hasattr(test, "callspec") else ()
    return set(test.fixturenames) - set(given)


def pytest_collection_modifyitems(config, items):
    started = [each for each in items if {"lab", "finished"} & fixtures(each)]
    config.hook.pytest_deselected(items=started)
    items[:] = [each for each in items if each not in started]
"""
"""A conftest.py: by its fixtures a test says that it starts the laboratory."""
DEAD = {"killed", "timeout", "segfault", "caught by type check"}
LIVE = {"survived", "no tests"}
"""What mutmut calls a mutant that no test has noticed; other words: it did not run."""


def tests_of(room: str, module: str) -> list[str]:
    """The tests that import a module; where none does, those that import something of its room."""
    texts = {each: each.read_text(encoding="utf-8") for each in sorted((ROOT / "lab" / "tests").glob("test_*.py"))}
    of_room = rf"plimsoll_lab\.{room}\b"
    of_module = of_room if module == EVERY else rf"plimsoll_lab\.{room}(\.| import .*\b){module}\b"
    found = [path for path, text in texts.items() if re.search(of_module, text)]
    found = found or [path for path, text in texts.items() if re.search(of_room, text)]
    return [str(each.relative_to(ROOT)) for each in found]


def prepare(room: str, module: str, named: list[str], *, anew: bool) -> Path:
    """A folder in the form that mutmut knows, with the tests that are named or else its own."""
    work = WORK / (room if module == EVERY else f"{room}-{module}")
    if anew:
        shutil.rmtree(work, ignore_errors=True)
    if not work.exists():
        ignored = shutil.ignore_patterns("__pycache__", "*.svg")
        shutil.copytree(ROOT / "lab", work / "lab", ignore=ignored)
        shutil.copytree(ROOT / "lab" / "plimsoll_lab", work / "src" / "plimsoll_lab", ignore=ignored)
        shutil.copytree(ROOT / "suites", work / "suites", ignore=ignored)
        shutil.copytree(ROOT / "docs" / "results", work / "docs" / "results", ignore=ignored)
        (work / "conftest.py").write_text(LEFT_OUT)
        tests = ", ".join(f'"{each}"' for each in named or tests_of(room, module))
        (work / "pyproject.toml").write_text(CONFIGURATION.format(room=room, module=module, tests=tests))
    return work


def mutmut(work: Path, *arguments: str) -> list[str]:
    """A command of mutmut there."""
    program = str(Path(sys.executable).with_name("mutmut"))
    if shutil.which(program) is None:
        sys.exit("mutmut is not installed beside this interpreter; `make .venv/.locked` installs it")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [program, *arguments],
        cwd=work,
        env=environment,
        check=False,
        text=True,
        stdout=None if arguments[0] == "run" else subprocess.PIPE,
    )
    if done.returncode != 0:
        sys.exit(f"mutmut {' '.join(arguments)} ended with exit code {done.returncode}")
    return (done.stdout or "").splitlines()


def survivors(work: Path, room: str) -> str:
    """How many mutants of each module died, and which live."""
    ends: dict[str, Counter[str]] = {}
    living = []
    for line in mutmut(work, "results", "--all", "true"):
        name, _, status = line.strip().rpartition(": ")
        module = name.removeprefix(f"plimsoll_lab.{room}.").partition(".")[0]
        ends.setdefault(module, Counter())[status] += 1
        if status in LIVE:
            living.append(f"{status}: {name}")
    rows = []
    for module, counts in sorted(ends.items()):
        dead, live = (sum(counts[each] for each in kinds) for kinds in (DEAD, LIVE))
        if dead + live:
            rows.append(f"{module}: {dead} of {dead + live} died ({dead / (dead + live):.1%})")
    return "\n".join([*rows, "", *living]) + "\n"


def main() -> None:
    """Run the mutants that have not run yet, or list those that live."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("module", nargs="*", help="of that room (default: all)")
    parser.add_argument("--anew", action="store_true", help="forget what was found until now")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="these alone, as lab/tests/test_knee.py")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--children", type=int, default=2, metavar="N", help="mutants at once (default: 2)")
    options = parser.parse_args()
    for module in options.module or [EVERY]:
        work = prepare(options.room, module, options.tests, anew=options.anew)
        if not options.list:
            mutmut(work, "run", "--max-children", str(options.children))
        print(survivors(work, options.room), end="", flush=True)


if __name__ == "__main__":
    main()
