"""The script that draws the charts of an open page: Vega-Lite with what it needs, in one piece.

It is the same for every page of one version of its library and takes a second to put together, so
it is kept in the user's cache, as the XDG Base Directory Specification 0.8 has it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from importlib import metadata
from pathlib import Path


def chart_engine() -> str:
    """The script, from the cache or made anew; a cache that cannot be written is done without."""
    folder = _cache()
    kept = folder / f"vega-{metadata.version('vl-convert-python')}.js"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return kept.read_text(encoding="utf-8")
    import vl_convert  # noqa: PLC0415 - 50 MB of renderer that only a report needs

    engine = vl_convert.javascript_bundle()  # type: ignore[call-arg] # its stub forgets the default
    with contextlib.suppress(OSError):
        _keep(kept, engine)
    return engine


def _keep(kept: Path, engine: str) -> None:
    """Whole or not at all, also where several labs do so at once."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=kept.parent, delete=False) as draft:
        try:
            draft.write(engine)
            draft.close()
            Path(draft.name).replace(kept)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(named) if Path(named).is_absolute() else Path(os.environ.get("HOME", "/")) / ".cache"
    return home / "plimsoll"
