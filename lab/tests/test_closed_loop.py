"""The law of a closed loop, against a server of which everything is known."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_lab.analysis.closed_loop import Case, Law, fit

SERVICE_S = 0.001


def simulate(clients: int, pause_s: float, rounds: int = 60) -> Case:
    """One server that takes requests in turn, for exactly a millisecond each."""
    waiting = [(client * 1e-9, client) for client in range(clients)]
    heapq.heapify(waiting)
    free_at = response_s = 0.0
    done = 0
    while done < clients * rounds:
        asked_at, client = heapq.heappop(waiting)
        free_at = max(free_at, asked_at) + SERVICE_S
        response_s += free_at - asked_at
        done += 1
        heapq.heappush(waiting, (free_at + pause_s, client))
    return Case(clients=clients, pause_s=pause_s, response_s=response_s / done, rate=done / free_at)


@pytest.mark.parametrize(("clients", "pause_s"), [(1, 0.5), (50, 0.0), (200, 0.1), (200, 0.15), (20, 0.2)])
def test_a_simulated_server_meets_the_law(clients: int, pause_s: float) -> None:
    law = fit([simulate(1, 0.5), simulate(100, 0.0)])
    assert law.highest_rate == pytest.approx(1000, rel=0.01)
    assert law.unqueued_s == pytest.approx(SERVICE_S)
    case = simulate(clients, pause_s)
    # The clients of one instant queue once, until the pauses have spread them.
    assert case.response_s == pytest.approx(law.least_response_s(clients, pause_s), rel=0.1, abs=0.0005)


@given(st.integers(1, 100_000), st.floats(0, 10), st.floats(1e-6, 1), st.floats(1, 1e6))
def test_a_pause_above_the_useful_one_buys_no_shorter_response(
    clients: int, more_s: float, unqueued_s: float, rate: float
) -> None:
    law = Law(unqueued_s=unqueued_s, highest_rate=rate)
    pause_s = law.useful_pause_s(clients)
    assert law.least_response_s(clients, pause_s + more_s) == pytest.approx(unqueued_s, abs=1e-9)
    if pause_s > 1e-6:  # below, the difference is lost in rounding
        assert law.least_response_s(clients, pause_s / 2) > unqueued_s


def test_the_law_in_figures() -> None:
    """2,500 clients of a server that completes 10,000/s: 250 ms in all, of which 30 ms are no
    queue.
    """
    law = Law(unqueued_s=0.03, highest_rate=10_000)
    assert law.least_response_s(2500, 0.2) == pytest.approx(0.05)
    assert law.least_response_s(2500, 0.0) == pytest.approx(0.25)
    assert law.least_response_s(2500, 0.3) == 0.03
    assert law.useful_pause_s(2500) == pytest.approx(0.22)
    assert law.useful_pause_s(100) == 0
    assert law.sentence(2500) == (
        "With 2,500 clients a pause above 220 ms leaves the server idle; a shorter pause adds queueing and no work, "
        "for it completes 10,000 requests a second at most."
    )
    # 300 clients keep it busy without any pause, and not with one.
    assert law.sentence(300) == "300 clients never keep this server busy, whatever their pause."


def test_a_law_is_of_the_least_response_and_the_highest_rate_of_what_completed_something() -> None:
    def case(response_s: float, rate: float) -> Case:
        return Case(clients=1, pause_s=0, response_s=response_s, rate=rate)

    seen = [case(0.2, 0.5), case(0.5, 0.9), case(0.01, 0), case(0, 99)]
    assert fit(seen) == Law(unqueued_s=0.2, highest_rate=0.9)


def test_cases_without_requests_show_no_law() -> None:
    why = "^no case completed a request, so there is neither a rate nor a response time$"
    with pytest.raises(ValueError, match=why):
        fit([Case(clients=1, pause_s=0, response_s=0, rate=0)])
