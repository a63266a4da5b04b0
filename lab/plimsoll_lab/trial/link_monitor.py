"""What the emulator did during a trial: the packets of each link, and when it was not the network
asked for.
"""

from __future__ import annotations

from plimsoll_lab.hosts.host import Process
from plimsoll_lab.hosts.netns import Network
from plimsoll_lab.store.program_output import Disturbance, LinkTotals, read_output
from plimsoll_lab.store.records import Json
from plimsoll_lab.trial.events import unix_s
from plimsoll_lab.trial.window import Window

SETTLED_S = 0.12
"""The emulator reports a disturbance a tenth of a second after its end
(crates/instrument/link/src/report.rs), and losses of the kernel's links within 20 ms."""
TELLS_WITHIN_S = 30.0
"""Against hanging: it prints its counts several times a second."""
COUNTS = (
    *("offered", "delivered", "dropped", "dropped_by_queue", "dropped_by_loss", "dropped_by_fault", "released_late"),
    *("offered_bytes", "delivered_bytes"),
)


class LinkMonitor:
    """Watches the emulator over one trial; without a network there is nothing to watch."""

    def __init__(self, network: Network | None) -> None:
        self._network = network
        self._before: Json | None = None

    @property
    def emulator(self) -> Process | None:
        """Its process, whose lines are read here only."""
        return self._network.emulator if self._network is not None else None

    def listen(self) -> None:
        """Take what it has said since."""
        if self._network is not None:
            self._network.listen()

    def begin(self) -> None:
        """The window opens."""
        if self._network is not None:
            self._before = self._network.latest

    def record(self, window: Window) -> Json:
        """What became of the packets, from the counts before the window opened to those after it
        closed.
        """
        network, before = self._network, self._before
        opened, closed = window.opened_unix_s, window.closed_unix_s
        if network is None or opened is None or closed is None:
            return {}
        after = network.counters(closed + SETTLED_S, TELLS_WITHIN_S)
        if after is None:
            return {"silent": True}
        then, now = _totals(before), _totals(after)
        inside = network.disturbances(opened, closed)
        around = network.disturbances(unix_s(before) if before else opened, unix_s(after))
        outside = [read_output(Disturbance, each, "the emulator") for each in around if each not in inside]
        return {
            "from_unix_s": before["unix_s"] if before else None,
            "to_unix_s": after["unix_s"],
            "links": _difference(then, now),
            "disturbances": inside,
            "lost_outside": sum(each.lost_frames for each in outside),
            "late_outside": sum(each.late_frames for each in outside),
            "drops_unknown": after.get("drops_unknown", []),
        }


def _totals(told: Json | None) -> LinkTotals:
    """All that it had counted; nothing before it said anything."""
    return read_output(LinkTotals, told, "the emulator") if told else LinkTotals(links=())


def _difference(then: LinkTotals, now: LinkTotals) -> list[Json]:
    links: list[Json] = []
    for number, way in enumerate(now.links):
        base = then.links[number].counts if then.links else {}
        difference = {key: way.counts[key] - base.get(key, 0) for key in COUNTS if key in way.counts}
        links.append({"from": way.start, "to": way.end, **difference})
    return links
