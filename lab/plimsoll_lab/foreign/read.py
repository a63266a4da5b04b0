"""Finds out which tool wrote a file, and reads it."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from plimsoll_lab.foreign import fortio, hdr, k6, oha, wrk
from plimsoll_lab.foreign.result import ForeignFileError, Options, Result, parse_json
from plimsoll_lab.store.form import YEAR_10000_UNIX_S

GZIP = b"\x1f\x8b"
"""How a gzip file begins (RFC 1952, section 2.3.1)."""
FORMATS = (
    "k6 (--summary-export, handleSummary, --out json), oha (--output-format json), fortio (-json), wrk2 and wrk "
    "(--latency), HdrHistogram (.hgrm, .hlog)"
)


def read_result(path: Path, options: Options) -> Result:
    """The measurement of a file. Raises `ForeignFileError` where it is damaged, or not known."""
    found = _read(path, options)
    began = found.started_unix_s
    if began is not None and not 0 <= began < YEAR_10000_UNIX_S:
        raise ForeignFileError(path, f"it began {began:g} s after 1970, which is no date")
    return found


def _read(path: Path, options: Options) -> Result:
    text = _text(path)
    if not text.strip():
        raise ForeignFileError(path, "it is empty")
    if text.lstrip().startswith("{"):
        return _read_json(text, path)
    if hdr.is_log(text):
        return hdr.read_log(text, path, options)
    if wrk.is_text(text):
        return wrk.read_text(text, path)
    if hdr.is_distribution(text):
        return hdr.read_distribution(text, path, options)
    raise ForeignFileError(path, f"it has no known format; known are {FORMATS}")


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith(GZIP):
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except OSError as error:
        raise ForeignFileError(path, f"it cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise ForeignFileError(path, f"it is damaged: {error}") from None
    except UnicodeDecodeError as error:
        raise ForeignFileError(path, f"it is no text in UTF-8 (byte {error.start})") from None


def _read_json(text: str, path: Path) -> Result:
    first = text.lstrip().partition("\n")[0].strip()
    # The lines of k6 are documents of their own, whose first keys are always these.
    if first.endswith("}") and '"type"' in first and '"metric"' in first:
        return k6.read_lines(text.splitlines(), path)
    document = parse_json(text, path)
    if isinstance(document, dict):
        for belongs, read in (
            (k6.is_summary, k6.read_summary),
            (oha.is_document, oha.read_document),
            (fortio.is_document, fortio.read_document),
        ):
            if belongs(document):
                return read(document, path)
    raise ForeignFileError(path, f"it is JSON of no known tool; known are {FORMATS}")
