"""The paths of emulated networks as a table: delay and goodput, asked for and measured."""

from __future__ import annotations

from plimsoll_lab.analysis.network import congestion_controls, paths
from plimsoll_lab.report.view import Cell, Section, Table
from plimsoll_lab.store.run_record import RunRecord

EXPLANATION = "one way: the links' delays together; RTT: of ICMP echoes of 98 bytes, with their time on the links"
HEADINGS = ("path", "one way", "RTT asked", "RTT measured", "goodput asked", "measured", "emulator")


def rows(run: RunRecord) -> list[tuple[str, ...]]:
    """The paths as a table's cells, in the order of the headings."""
    table: list[tuple[str, ...]] = []
    for path in paths(run):
        asked, measured = path.asked, path.measured
        times = measured.round_trip_us
        where = ", ".join(f"{key.removeprefix('network.')} {value}" for key, value in path.setting.items())
        table.append(
            (
                f"{path.start} to {path.end}" + (f" ({where})" if where else ""),
                _ms(asked.one_way_us),
                _ms(asked.round_trip_us),
                _ms(times["p50"]) + _off(path.off.round_trip) if times else "-",
                _rate(asked.goodput_bits_per_s),
                _rate(measured.goodput_bits_per_s) + _off(path.off.goodput),
                path.backend,
            )
        )
    return table


def section(run: RunRecord) -> Section:
    """The section of the page; without parts where the suite has no network."""
    found = rows(run)
    if not found:
        return Section(name="network", title="Network")
    body = tuple((Cell(text=row[0], heading=True), *(Cell(text=cell) for cell in row[1:])) for row in found)
    table = Table(caption="Paths, measured before the first trial", head=HEADINGS, rows=body)
    controls = congestion_controls(run)
    said = f" Congestion control of TCP: {', '.join(controls)}." if controls else ""
    return Section(name="network", title="Network", note=f"{EXPLANATION}.{said}", parts=[table])


def _ms(us: float) -> str:
    return f"{us / 1e3:.3f} ms"


def _rate(bits_per_s: float | None) -> str:
    return "-" if bits_per_s is None else f"{bits_per_s / 1e6:.2f} Mbit/s"


def _off(ratio: float | None) -> str:
    return "" if ratio is None else f" ({ratio * 100:+z.1f} %)"
