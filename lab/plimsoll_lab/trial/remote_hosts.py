"""What a trial needs beside messages where its hosts are other machines: their clocks compared, a
deadline for what runs there, a folder for its files, and these files brought back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from plimsoll_lab.hosts.clock import Offset, moved
from plimsoll_lab.hosts.host import Host
from plimsoll_lab.hosts.messages import HasFolder, ListFolder, MakeFolder, ReadFile, RemoveFolder
from plimsoll_lab.problem import ENVIRONMENT, HostLost, LabError
from plimsoll_lab.store.records import ClockRecord, OffsetRecord, ResultWarning
from plimsoll_lab.suite.spec import Point
from plimsoll_lab.trial.generators import LateStart, TrialFailure
from plimsoll_lab.trial.starved import Starved

FILES_MOST_BYTES = 1 << 30
"""The most bytes copied back from a host after a trial: a capture of 96 bytes a packet holds seven
million of them."""
PART_BYTES = 4 << 20
"""Read in one message: it crosses Ray's store, which may be as small as 75 MB."""
CLOCK_MOVED_S = 0.001
"""A clock that moved by more than this against the lab's during a trial gives a warning."""
GRACE_S = 10.0
"""More than a trial takes at most: a host then ends its processes without being asked."""
IN_FOLDER = "{dir}"
ENDS_EARLY = (TrialFailure, LateStart, Starved, HostLost)
"""What ends a trial early that is recorded."""


class RemoteHosts:
    """The hosts of one trial on other machines."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self._hosts = hosts
        self._before: dict[str, Offset] = {}
        self._collected: set[str] = set()

    @contextlib.contextmanager
    def prepared(self, longest_s: float, records: Path, capture: Path | None) -> Iterator[None]:
        """Compare the clocks, and have a folder on each host. Leaving this removes the folders; the
        files of a trial that ends early are brought back before, from the hosts that still answer.
        """
        try:
            for name, host in self._hosts.items():
                host.deadline_s = longest_s + GRACE_S
                host.records = host.connection.ask(MakeFolder())
                self._before[name] = host.compare_clock()
                host.clock_offset_s = self._before[name].known_s
            yield
        except ENDS_EARLY:
            # What ended the trial is told, and not why a file of it could not be brought back.
            for name in self._hosts:
                with contextlib.suppress(LabError, OSError):
                    self._collect_from(name, records, capture)
            raise
        finally:
            for host in self._hosts.values():
                folder, host.records, host.deadline_s = host.records, None, None
                if folder is not None:
                    with contextlib.suppress(HostLost):
                        host.connection.ask(RemoveFolder(path=folder))

    def clocks(self) -> tuple[list[ClockRecord], list[ResultWarning]]:
        """How far each clock was from the lab's before the trial and is now; which has moved."""
        rows: list[ClockRecord] = []
        warnings = []
        for name, host in self._hosts.items():
            before, after = self._before[name], host.compare_clock()
            rows.append(ClockRecord(host=name, address=host.all_addresses[0], before=_told(before), after=_told(after)))
            by_s = moved(before, after)
            if by_s > CLOCK_MOVED_S:
                message = f"the clock of {name} moved by {by_s * 1e3:.1f} ms against the lab's during the trial"
                remedy = "have the hosts' clocks kept by one time service, such as chrony"
                warnings.append(ResultWarning(code="clock_moved", message=message, remedy=remedy))
        return rows, warnings

    def collect(self, records: Path, capture: Path | None) -> list[ResultWarning]:
        """Bring back the files of the trial, once; a capture goes to its own place. A host's files
        beyond FILES_MOST_BYTES are not brought back, and a warning names each.
        """
        return [warning for name in self._hosts for warning in self._collect_from(name, records, capture)]

    def _collect_from(self, name: str, records: Path, capture: Path | None) -> list[ResultWarning]:
        host = self._hosts[name]
        if host.records is None or name in self._collected:
            return []
        warnings = []
        left = FILES_MOST_BYTES
        for file, size in host.connection.ask(ListFolder(path=host.records)).items():
            if size > left:
                message = (
                    f"{file} of {name} has {size} bytes, and at most {FILES_MOST_BYTES} a host are brought back: "
                    "it is not kept"
                )
                warnings.append(ResultWarning(code="file_too_large", message=message, remedy="use a shorter window"))
                continue
            left -= size
            there = capture if capture is not None and file == capture.name else records / file
            _fetch(host, f"{host.records}/{file}", there)
        self._collected.add(name)
        return warnings


def refuse_missing_folder(hosts: Mapping[str, Host], point: Point, directory: str) -> None:
    """Raise LabError where a part uses the suite's folder, and its host has none of this path."""
    parts = [(point.place.server, point.server), *((name, point.load) for name in point.place.load)]
    parts += [(role.on, role.settings) for role in point.roles]
    for name, settings in parts:
        uses = any(IN_FOLDER in str(value) for value in settings.values())
        if name is not None and uses and not hosts[name].connection.ask(HasFolder(path=directory)):
            raise LabError(
                f"{name} has no folder {directory}, which the suite calls {IN_FOLDER}; copy the suite's folder to the "
                "same path on every host",
                exit_code=ENVIRONMENT,
            )


def _fetch(host: Host, path: str, there: Path) -> None:
    there.parent.mkdir(parents=True, exist_ok=True)
    with there.open("wb") as file:
        offset = 0
        while part := host.connection.ask(ReadFile(path=path, offset=offset, most_bytes=PART_BYTES)):
            file.write(part)
            offset += len(part)


def _told(offset: Offset) -> OffsetRecord:
    return OffsetRecord(offset_us=offset.offset_s * 1e6, error_us=offset.error_s * 1e6)
