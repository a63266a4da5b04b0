"""HdrHistograms as records and logs have them: compressed, in Base64."""

from __future__ import annotations

import binascii
import zlib
from typing import TYPE_CHECKING

from plimsoll_lab.problem import LabError

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram


def decode(encoded: str) -> HdrHistogram:
    """The histogram of a text. Raises ValueError with the reason where it is damaged."""
    from hdrh.codec import HdrCookieException, HdrLengthException  # noqa: PLC0415 - few commands need it
    from hdrh.histogram import HdrHistogram  # noqa: PLC0415 - the same

    try:
        found: HdrHistogram = HdrHistogram.decode(encoded)
    except (
        *(HdrCookieException, HdrLengthException, binascii.Error, zlib.error),
        *(TypeError, ValueError, IndexError, RuntimeError),
    ) as error:
        raise ValueError(str(error) or type(error).__name__) from None
    return found


def decode_kept(encoded: str, trial: int) -> HdrHistogram:
    """The histogram that a trial of a run keeps. Raises `LabError` where it is damaged."""
    try:
        return decode(encoded)
    except ValueError as error:
        raise LabError(
            f"the histogram of trial {trial} is damaged ({error}); remove its record from trials/, and "
            "'plimsoll lab resume' measures it again"
        ) from None
