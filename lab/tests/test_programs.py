"""The files of what measures, by their digests: of a command, and of the laboratory."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from plimsoll_lab.experiment.programs import changed_programs
from plimsoll_lab.hosts.binary import lab_digest, program_digests


def test_the_files_of_a_command_are_its_program_and_its_script(tmp_path: Path) -> None:
    program, script, other = tmp_path / "server", tmp_path / "server.js", tmp_path / "settings"
    for path in (program, script, other):
        path.write_text(path.name)
    program.chmod(0o755)
    words = [str(program), "--port", "8080", "x" * 5000, str(script), str(other)]
    assert program_digests(words) == {
        str(path): hashlib.sha256(path.name.encode()).hexdigest() for path in (program, script)
    }
    assert program_digests(["true"]).keys() == {shutil.which("true")}
    assert program_digests([str(tmp_path / "missing"), "-v"]) == {}


@pytest.mark.parametrize("before", ["env GOMAXPROCS=1", "taskset -c 0", "nice -n 5 env A=1"])
def test_the_files_of_a_command_have_the_server_behind_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Of a server that was found on the PATH, only the program before it was looked at."""
    for name in ("env", "taskset", "nice", "my-server", "x.conf"):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o644 if name == "x.conf" else 0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    words = [*before.split(), "my-server", "-c", str(tmp_path / "x.conf")]
    found = program_digests(words)
    named = {"my-server", "x.conf", *({"env", "taskset", "nice"} & set(words))}
    assert found.keys() == {str(tmp_path / name) for name in named}
    (tmp_path / "my-server").write_text("built anew")
    (changed,) = changed_programs(found, program_digests(words))
    assert changed.startswith(f"{tmp_path / 'my-server'} was SHA-256 ")


def test_the_digest_of_a_lab_is_of_its_files_wherever_they_are_installed(tmp_path: Path) -> None:
    """An installed one has the suites beside them, and what Python has compiled."""
    first, installed, changed = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    for folder in (first, installed, changed):
        (folder / "stats").mkdir(parents=True)
        (folder / "stats/gate.py").write_text("EXACT = True\n")
    for name in (
        "suites/demo.toml",
        "stats/__pycache__/gate.cpython-311.pyc",
        "stats/.gate.py.swp",
        "stats/.#x.py",
        ".cache/x.json",
        "stats/old.js/note",
    ):
        (installed / name).parent.mkdir(exist_ok=True)
        (installed / name).write_text("more")
    (changed / "stats/gate.py").write_text("EXACT = False\n")
    assert lab_digest(first) == lab_digest(installed) != lab_digest(changed)
    (first / "stats/gate.py").rename(first / "stats/gates.py")
    assert lab_digest.__wrapped__(first) not in {lab_digest(installed), lab_digest(changed)}
