"""The script that draws charts is put together once, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_lab.report.engine import chart_engine


def test_it_is_made_once_and_then_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = chart_engine()
    [kept] = (tmp_path / "plimsoll").iterdir()
    assert kept.read_text() == made
    assert "vega" in made
    kept.write_text("what was kept")
    assert chart_engine() == "what was kept"


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plimsoll").write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "vega" in chart_engine()
    assert [path.name for path in tmp_path.iterdir()] == ["plimsoll"]
