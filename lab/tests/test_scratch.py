"""Temporary folders, where several laboratories make and remove them at once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from plimsoll_lab.hosts.scratch import ScratchFolder


def test_a_folder_that_another_removes_before_it_is_open_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.mkdtemp
    removed: list[str] = []

    def made(prefix: str) -> str:
        path = make(prefix=prefix)
        if not removed:
            Path(path).rmdir()
            removed.append(path)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", made)
    with ScratchFolder() as folder:
        assert Path(folder.path).is_dir()
        assert [folder.path] != removed
    assert not Path(folder.path).exists()


def test_no_fake_binary_is_left_of_tests_that_were_killed(tmp_path: Path) -> None:
    """Mutants of the laboratory, each tested by a process that ends so, left thousands."""
    path = os.pathsep.join(str(folder) for folder in (Path(__file__).parent.parent, Path(__file__).parent))
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": path}
    left = []
    for end in ("os._exit(0)", "sys.exit(0)"):
        code = f"import os, sys, conftest; print(conftest.FAKE, flush=True); {end}"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert Path(done.stdout.strip()).is_relative_to(tmp_path)
        left.append(len(list(tmp_path.iterdir())))
    assert left == [1, 0]
