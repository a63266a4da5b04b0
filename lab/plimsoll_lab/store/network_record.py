"""Emulated networks of a run, in run.json: what was asked of each path, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import AliasChoices, Field

from plimsoll_lab.store.form import Record


class PathTargetRecord(Record):
    """What was asked of a path."""

    one_way_us: float
    """The delay of its links, added up."""
    round_trip_delay_us: float
    """The same there and back."""
    round_trip_us: float
    """Of an ICMP echo, with its time on the links."""
    goodput_bits_per_s: float | None
    """Payload a second; null without a rate."""


class PathMeasurementRecord(Record):
    """What was measured of a path."""

    round_trip_us: Mapping[str, int | float]
    """Count, minimum, p50 and p99 of ICMP echoes; empty where none came back."""
    goodput_bits_per_s: float | None
    """Payload a second; null where it was not measured."""


class PathDeviationRecord(Record):
    """Relative differences of measured from asked."""

    round_trip: float | None
    """Of the median round trip; null without a delay or an echo."""
    goodput: float | None
    """Of the goodput; null without a rate."""


class PathRecord(Record):
    """A path of an emulated network from one host to another."""

    start: str = Field(validation_alias=AliasChoices("from", "start"), serialization_alias="from")
    """The host it begins at."""
    end: str = Field(validation_alias=AliasChoices("to", "end"), serialization_alias="to")
    """The host it ends at."""
    asked: PathTargetRecord
    """What was asked for."""
    measured: PathMeasurementRecord
    """What the last measurement found."""
    off: PathDeviationRecord
    """How far it is off."""
    within: bool
    """Whether that is near enough."""
    attempts: int
    """How often it was measured."""

    def in_words(self) -> str:
        """What was asked for and what was measured."""
        asked, measured = self.asked, self.measured
        times = measured.round_trip_us
        parts = []
        if times:
            wanted_ms = asked.round_trip_us / 1e3
            parts.append(f"a round trip of {times['p50'] / 1e3:.3f} ms for {wanted_ms:.3f} ms asked")
        else:
            parts.append("no echo came back")
        if asked.goodput_bits_per_s is not None and measured.goodput_bits_per_s is not None:
            rates = [each / 1e6 for each in (measured.goodput_bits_per_s, asked.goodput_bits_per_s)]
            parts.append(f"a goodput of {rates[0]:.2f} Mbit/s for {rates[1]:.2f} Mbit/s asked")
        return ", ".join(parts)


class CalibrationRecord(Record):
    """An emulated network as it was measured before the first trial."""

    unix_s: float
    """When."""
    points: Sequence[int]
    """The points that use it."""
    backend: str
    """What emulates it."""
    large_segments: str | None
    """Whether the links keep large segments whole."""
    priority: str | int | None
    """The scheduling priority of the emulator."""
    congestion: Mapping[str, str] | None = None
    """By host: what controls the congestion of its connections, as its kernel says of one; null in
    records of earlier versions."""
    paths: Sequence[PathRecord]
    """Each path that a part of the run uses."""
