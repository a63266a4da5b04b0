"""What a run's searches have found, as tables: every load that was tried, and an overview of the
servers.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.searches import confirmation, is_held, limits_text, refused, searched_key
from plimsoll_lab.report.view import Cell, Fold, Part, Table, Text
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.search_record import SearchRecord
from plimsoll_lab.store.summary_record import RunSummary


def table_of_loads(run: RunRecord, search: SearchRecord) -> list[list[str]]:
    """A head and a row a load: how many trials met the limits, and the medians."""
    figures = run.figures_by_name
    names = list(dict.fromkeys(name for row in search.loads for name in row.medians))
    table = [[searched_key(run), "met", *(figures[name].label for name in names)]]
    for row in search.loads:
        cells = [formatting.number(row.medians.get(name), figures[name].unit) for name in names]
        table.append([f"{row.load:,}", f"{row.good}/{row.trials}", *cells])
    return table


def render_searches(summary: RunSummary, run: RunRecord) -> list[str]:
    """The tables for the terminal: one for each search where there are few, else a row each."""
    searches = [each for each in run.searches if each.loads]
    if len(searches) > 1:
        return ["", *_aligned(_overview(summary))]
    return [
        line
        for each in searches
        for line in ["", *_aligned(table_of_loads(run, each)), *filter(None, [confirmation(each)])]
    ]


def _overview(summary: RunSummary) -> list[list[str]]:
    table = [["", "carries", "not", "searches", "spread", "limited by", "what breaks first"]]
    table += [
        [
            formatting.setting(each.point) if each.point else "",
            "-" if each.lower is None else f"{each.lower:,}",
            refused(each),
            f"{each.ended}/{each.searches}",
            "-" if each.spread is None else formatting.percent(each.spread),
            each.limited_by or "-",
            each.first_break or "-",
        ]
        for each in summary.capacities
    ]
    return table


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    last = len(widths) - 1
    return [
        "  ".join(
            cell if column == last and not cell[:1].isdigit() else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def searches_section(summary: RunSummary, run: RunRecord) -> list[Part]:
    """The parts of the page; none for a run that searched for nothing."""
    if not run.searches:
        return []
    searches = [each for each in run.searches if each.loads]
    parts: list[Part] = [Text(text=_note(run)), _view(_overview(summary), "Capacity of each server")]
    for each in searches:
        title = formatting.setting(each.setting) if each.setting else "The search"
        table = _view(
            table_of_loads(run, each),
            f"{title}, search {each.block}: every load that was tried, medians of all its trials",
        )
        told = [Text(text=f"{said}.") for said in [confirmation(each)] if said]
        parts.append(Fold(title=table.caption, parts=(table, *told), is_open=len(searches) == 1))
    return parts


def _note(run: RunRecord) -> str:
    ceilings = [each.generator_ceiling_per_s for each in run.searches if each.generator_ceiling_per_s]
    told = (
        f" The generator itself completes {formatting.number(max(ceilings), 'per_s')} against a null server here."
        if ceilings
        else ""
    )
    return f"The highest load that meets {limits_text(run)}{_confirmed(run)}.{told}"


def _confirmed(run: RunRecord) -> str:
    """In how many searches fresh trials confirmed the answer; nothing where none has one."""
    answers = [each for each in run.searches if each.lower is not None]
    sure = sum(is_held(each) for each in answers)
    if not answers:
        return ""
    some = f" in {sure} of {len(answers)} searches" if sure not in {0, len(answers)} else ""
    return f", {'' if sure else 'not '}confirmed by fresh, longer trials{some}"


def _view(table: Sequence[Sequence[str]], caption: str) -> Table:
    rows = tuple((Cell(text=line[0], heading=True), *(Cell(text=cell) for cell in line[1:])) for line in table[1:])
    return Table(caption=caption, head=tuple(table[0]), rows=rows)
