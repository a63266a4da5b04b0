"""The answer of `plimsoll lab capacity`: the summary of a run with one search, as one object."""

from __future__ import annotations

from plimsoll_lab.analysis.searches import limits_text, searched_key
from plimsoll_lab.store.capacity_answer import CapacityAnswer, SearchSummary
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary


def capacity_summary(run: RunRecord, summary: RunSummary) -> CapacityAnswer:
    """The run's summary in the form of `capacity`: the one thing that was asked for at its top."""
    found = summary.capacities[0]
    return CapacityAnswer(
        run=summary.run,
        report=summary.report,
        status=summary.status,
        over=searched_key(run),
        lower=found.lower,
        upper=found.upper,
        held_s=found.held_s,
        precision=found.precision,
        finished=found.finished,
        limit=limits_text(run),
        limited_by=found.limited_by,
        first_break=found.first_break,
        causes=found.causes,
        answer=[found.text],
        generator_ceiling_per_s=found.generator_ceiling_per_s,
        valid=summary.valid,
        trials=summary.trials.measured,
        searches=[
            SearchSummary(
                block=each.block,
                state=each.state,
                lower=each.lower,
                upper=each.upper,
                limited_by=each.limited_by,
                confirmed=each.confirmed,
                unconfirmed=each.unconfirmed,
                loads=each.loads,
            )
            for each in run.searches
        ],
        lowers=found.lowers,
        spread=found.spread,
        command=summary.command,
        warnings=summary.warnings,
    )
