"""The law of a closed loop: N clients that pause Z between requests cannot wait less than N/X - Z.

With X the most requests a second that the server completes, and R0 the response time without
queueing, R is at least max(R0, N/X - Z) (Denning and Buzen, "The operational analysis of queueing
network models", ACM Computing Surveys 10(3), 1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What one load came to."""

    clients: int
    """Connections that ask in turn, N."""
    pause_s: float
    """Between an answer and the next request, Z."""
    response_s: float
    """Mean response time, R."""
    rate: float
    """Requests completed a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """What follows from all cases together."""

    unqueued_s: float
    """R0: the least mean response time of any case."""
    highest_rate: float
    """X: the most requests a second of any case."""

    def least_response_s(self, clients: int, pause_s: float) -> float:
        """The response time that so many clients with this pause cannot get below, in seconds."""
        return max(self.unqueued_s, clients / self.highest_rate - pause_s)

    def useful_pause_s(self, clients: int) -> float:
        """The pause at which the server is just busy; 0 where so few never keep it busy."""
        return max(0.0, clients / self.highest_rate - self.unqueued_s)

    def sentence(self, clients: int) -> str:
        """What follows for so many clients."""
        pause_ms = self.useful_pause_s(clients) * 1e3
        if not pause_ms:
            return f"{clients:,} clients never keep this server busy, whatever their pause."
        return (
            f"With {clients:,} clients a pause above {pause_ms:,.0f} ms leaves the server idle; a shorter pause adds "
            f"queueing and no work, for it completes {self.highest_rate:,.0f} requests a second at most."
        )


def fit(cases: Sequence[Case]) -> Law:
    """The law that some cases show. Both figures are bounds: X is at least, R0 at most what was
    seen. Raises ValueError where no case completed a request.
    """
    done = [case for case in cases if case.rate > 0 and case.response_s > 0]
    if not done:
        raise ValueError("no case completed a request, so there is neither a rate nor a response time")
    return Law(
        unqueued_s=min(case.response_s for case in done),
        highest_rate=max(case.rate for case in done),
    )
