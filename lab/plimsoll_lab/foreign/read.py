"""Finds out which tool wrote a file, and reads it."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

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
    with _opened(path) as file:
        head = []
        for line in file:
            head.append(line)
            if line.strip():
                break
        else:
            raise ForeignFileError(path, "it is empty")
        if k6.is_line(head[-1]):
            # A million requests are a file of a gigabyte.
            return k6.read_lines(itertools.chain(head, file), path)
        text = "".join(head) + file.read()
    if text.lstrip().startswith("{"):
        return _read_json(text, path)
    if hdr.is_log(text):
        return hdr.read_log(text, path, options)
    if wrk.is_text(text):
        return wrk.read_text(text, path)
    if hdr.is_distribution(text):
        return hdr.read_distribution(text, path, options)
    raise ForeignFileError(path, f"it has no known format; known are {FORMATS}")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Its text, which is read as it is needed."""
    try:
        with path.open("rb") as content:
            packed = content.peek(len(GZIP)).startswith(GZIP)
            plain = gzip.GzipFile(fileobj=content) if packed else content
            with io.TextIOWrapper(plain, "utf-8-sig") as text:
                yield text
    except OSError as error:
        raise ForeignFileError(path, f"it cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise ForeignFileError(path, f"it is damaged: {error}") from None
    except UnicodeDecodeError as error:
        raise ForeignFileError(path, f"it is no text in UTF-8 ({error.reason})") from None


def _read_json(text: str, path: Path) -> Result:
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
