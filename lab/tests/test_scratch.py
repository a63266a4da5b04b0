"""Temporary folders, where several laboratories make and remove them at once."""

from __future__ import annotations

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
