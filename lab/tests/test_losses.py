"""What lost packets leave of a closed loop: bounds that hold what would have been measured without
losses.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field

import pytest
from simulated_loops import told

from plimsoll_lab.store.program_output import LinkWindow, LoadSummary
from plimsoll_lab.trial.disturbance import (
    LoggedRequest,
    cut_record,
    network_warnings,
    requests_alone,
    unknown_moments,
    without_cut,
)
from plimsoll_lab.trial.losses import loss_record

RTO_S = 0.2
"""The least time after which Linux sends a segment again (TCP_RTO_MIN); each further time twice as
long."""
WARM_UP_S = 1.0


def network(*, lost: int, late: int = 0, moments: int = 0) -> LinkWindow:
    link = {"from": "s1", "to": "h2-eth0", "delivered": 10_000, "released_late": late, "dropped_by_fault": lost}
    each = {"from_unix_s": 1.0, "to_unix_s": 1.1, "late_frames": late, "lost_frames": lost, "worst_us": 2500}
    return LinkWindow.model_validate({"links": [link], "disturbances": [each] * moments})


@dataclass
class Loop:
    """A closed loop before one server that takes the same time for each request, first come, first
    served: without losses every response time is known.
    """

    connections: int
    service_s: float
    think_s: float = 0.0
    window_s: float = 10.0
    each: int | None = None
    """Requests on each connection, then it ends; the window lasts until then."""
    lossy: float = 0.0
    """The probability that a packet is lost, from the window's start on."""
    seed: int = 0
    lost: int = field(default=0, init=False)

    def run(self) -> tuple[LoadSummary, LoggedRequest]:
        """What its generator tells of one window, and its request log."""
        luck = random.Random(self.seed)
        left = [self.each or math.inf] * self.connections
        phase_s = self.think_s or self.connections * self.service_s
        events = [(number * phase_s / self.connections, number, "begin", 0) for number in range(self.connections)]
        warm_up_s = 0.0 if self.each else WARM_UP_S
        begun = dict.fromkeys(range(self.connections), 0.0)
        under_way: set[int] = set()
        rows: list[tuple[float, float, int]] = []
        free_at = now = 0.0

        def send(number: int, kind: str, tries: int) -> None:
            is_lost = now >= warm_up_s and luck.random() < self.lossy
            self.lost += is_lost
            after = (now + RTO_S * 2**tries, number, "lost " + kind, tries + 1) if is_lost else (now, number, kind, 0)
            heapq.heappush(events, after)

        while events and (self.each or events[0][0] < warm_up_s + self.window_s):
            now, number, kind, tries = heapq.heappop(events)
            if kind == "begin":
                begun[number] = now
                under_way.add(number)
                send(number, "request", 0)
            elif kind.startswith("lost "):
                send(number, kind.removeprefix("lost "), tries)
            elif kind == "request":
                free_at = max(now, free_at) + self.service_s
                heapq.heappush(events, (free_at, number, "served", 0))
            elif kind == "served":
                send(number, "answer", 0)
            else:
                rows.append((begun[number], now - begun[number], number))
                under_way.discard(number)
                left[number] -= 1
                if left[number]:
                    heapq.heappush(events, (now + self.think_s, number, "begin", 0))
        ended = now if self.each else warm_up_s + self.window_s
        rows = [each for each in rows if each[0] + each[1] >= warm_up_s]
        ages = [ended - begun[number] for number in under_way]
        summary = told([time_s for _, time_s, _ in rows] + ages, len(rows), ended - warm_up_s, self.connections)
        starts, times_s, numbers = zip(*rows, strict=True)
        return summary, LoggedRequest(starts=starts, times_s=times_s, connections=numbers)


@pytest.mark.parametrize(
    ("loop", "lossy", "bounded"),
    [
        (Loop(connections=200, service_s=0.001), 0.001, {"completed_rate", "response_time_us.p50"}),
        (Loop(connections=20, service_s=0.001), 0.001, {"completed_rate", "response_time_us.mean"}),
        (Loop(connections=20, service_s=0.001), 0.004, set()),
        (Loop(connections=50, service_s=0.002, think_s=0.05), 0.001, {"completed_rate"}),
        (Loop(connections=100, service_s=0.001, each=100), 0.0002, {"elapsed_s", "completed_rate"}),
        (Loop(connections=200, service_s=0.0001, think_s=1.0, each=20), 0.0005, {"elapsed_s", "completed_rate"}),
    ],
)
def test_the_bounds_of_a_lossy_closed_loop_hold_what_it_measures_without_losses(
    loop: Loop, lossy: float, bounded: set[str]
) -> None:
    windows, held, seen = 10, 0, 0
    true, _ = loop.run()
    known: dict[str, int] = {}
    for seed in range(windows):
        run = Loop(**{key: getattr(loop, key) for key in ("connections", "service_s", "think_s", "window_s", "each")})
        run.lossy, run.seed = lossy, seed
        load, log = run.run()
        cut = loss_record(network(lost=run.lost), load, load.requests.completed, log, counted=run.each is not None)
        assert cut is not None, "so few packets are lost"
        for name, (low, high) in cut.bounds.items():
            kind, _, part = name.partition(".")
            value = getattr(getattr(true, kind), part) if part else getattr(true, kind)
            # The window's ends, and the histogram's three digits.
            held += low * 0.997 <= value <= high * 1.003
            seen += 1
            known[name] = known.get(name, 0) + 1
    assert held >= 0.95 * seen, (held, seen)
    missing = {name for name in bounded if known.get(name, 0) < windows / 2}
    assert not missing, "bounds that are always doubted would hold anything"


def test_a_closed_loop_whose_connections_wait_much_says_nothing_of_times_or_rates() -> None:
    # Half of all connections' time is one of waiting: the others' times are half of what all make.
    load = told([0.001] * 9_950 + [0.2] * 50, 10_000, 1.0, 20)
    cut = loss_record(network(lost=60), load, 10_000)
    assert cut is not None
    assert cut.bounds == {}
    figures = dict.fromkeys(
        ("completed_rate", "packets_per_s", "server.cpu_cores", "response_time_us.p50", "response_time_us.max"), 1.0
    )
    assert without_cut(figures | {"server.memory_bytes": 5.0}, cut) == {"server.memory_bytes": 5.0}
    assert {"response_time_us.p50", "response_time_us.mean", "completed_rate"} <= set(cut.doubted)


def test_times_and_rates_are_known_as_far_as_those_of_lost_packets_do_not_matter() -> None:
    load = told([0.001] * 99_990 + [0.2] * 10, 100_000, 10.0, 10)
    cut = loss_record(network(lost=12), load, 100_000)
    assert cut is not None
    assert cut.touched == 12
    # Twelve requests took ten times 200 ms and twice 1 ms, of 100 s of connections' time.
    assert cut.bounds["completed_rate"] == pytest.approx((10_000, 10_000 / (1 - 2.002 / 100)), rel=1e-3)
    assert cut.bounds["response_time_us.p99_9"] == pytest.approx((1000, 1000 * (1 + 2.002 / 99.988)), rel=0.002)
    assert cut.bounds["response_time_us.mean"] == pytest.approx((1000, 1019.9), rel=0.002)
    assert cut.estimates["response_time_us.p99"] == 1000
    assert cut.doubted == []


def test_a_counted_run_lasts_as_long_as_its_slowest_connection() -> None:
    # Of ten connections that make 100 requests of 10 ms each, one waits for 200 ms, twice.
    each = [0.01] * 100
    slow = [0.01] * 98 + [0.2] * 2
    load = told(each * 9 + slow, 1000, sum(slow), 10)
    rows = [
        (number, sum(times[:place]), times[place])
        for number, times in enumerate([each] * 9 + [slow])
        for place in range(100)
    ]
    log = LoggedRequest(
        connections=[number for number, _, _ in rows],
        starts=[start for _, start, _ in rows],
        times_s=[time_s for _, _, time_s in rows],
    )
    for known in (log, None):
        cut = loss_record(network(lost=2), load, 1000, known, counted=True)
        assert cut is not None
        assert {"elapsed_s", "completed_rate"} <= set(cut.doubted), "without the losses it had taken 1 s, not 1.38 s"
        assert without_cut({"elapsed_s": 1.38, "completed_rate": 724.6}, cut) == {}
        assert without_cut({"client.h2.elapsed_s": 1.38, "role.forwarder.cpu_cores": 0.5}, cut) == {
            "role.forwarder.cpu_cores": 0.5
        }


@pytest.mark.parametrize(("lost", "spoilt"), [(100, False), (101, True)])
def test_a_closed_loop_bears_losses_of_up_to_a_hundredth_of_its_requests(lost: int, *, spoilt: bool) -> None:
    seen, load = network(lost=lost), told([0.001] * 10_000, 10_000, 1.0, 10)
    assert (unknown_moments(seen, 10_000) is not None) == spoilt
    assert (loss_record(seen, load, 10_000) is None) == spoilt
    assert unknown_moments(seen) is not None
    assert loss_record(seen, load, 0) is None


def test_a_lost_packet_holds_up_its_own_request_alone_only_where_requests_are_a_few_packets() -> None:
    def load(sent: int, received: int) -> LoadSummary:
        requests = {"completed": 900, "scheduled": 1000}
        return LoadSummary.model_validate({"requests": requests, "bytes_sent": sent, "bytes_received": received})

    assert requests_alone(load(64_000, 64_000), closed=True) == 900
    assert requests_alone(load(64_000, 64_000), closed=False) == 0
    assert requests_alone(load(64_000, 64_000_000), closed=True) == 0


def test_losses_at_known_moments_bound_a_closed_loop_and_those_outside_its_window_are_none() -> None:
    load = told([0.001] * 10_000, 10_000, 1.0, 10)
    moments = network(lost=60, moments=3)
    cut = loss_record(moments, load, 10_000)
    assert cut is not None
    assert cut.touched == 60
    assert loss_record(moments, load, 100) is None
    assert loss_record(network(lost=60, late=5, moments=3), load, 10_000) is None
    after = network(lost=60).model_copy(update={"lost_outside": 60})
    assert unknown_moments(after) is None
    assert network_warnings(after) == []
    assert loss_record(after, load, 10_000) is None


@pytest.mark.parametrize("closed", [True, False])
def test_a_moment_at_which_packets_were_lost_is_cut_out_until_all_that_it_found_are_answered(*, closed: bool) -> None:
    # One connection makes a request each 10 ms; the one due at 4.00 s loses a packet.
    starts = [each / 100 for each in range(1000) if not 400 < each < 420]
    times_s = [0.205 if start == 4.0 else 0.002 for start in starts]
    moment = {"from_unix_s": 4.0, "to_unix_s": 4.02, "late_frames": 1, "lost_frames": 1, "worst_us": 900}
    seen = LinkWindow.model_validate({"links": [], "disturbances": [moment]})
    cut = cut_record(seen, (1e-9, 10.0), LoggedRequest(starts=starts, times_s=times_s), closed=closed)
    assert cut is not None
    assert cut.share * 10 == pytest.approx(0.215, abs=0.002)
    assert cut.completed_rate == pytest.approx(100, rel=0.002)
    # It is answered after the window: nothing of the rest of the window is kept.
    never = [(start, time_s) for start, time_s in zip(starts, times_s, strict=True) if start < 4.0]
    log = LoggedRequest(
        starts=[each for each, _ in never], times_s=[each for _, each in never], under_way=[(4.0, 10.5)]
    )
    cut = cut_record(seen, (1e-9, 10.0), log, closed=closed)
    assert cut is not None
    assert cut.share == pytest.approx(0.601, abs=0.001)
    assert "completed_rate" in cut.doubted
