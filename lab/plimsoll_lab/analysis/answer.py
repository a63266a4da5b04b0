"""The verdicts in sentences: one a figure, saying no more than was shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.store.records import Json

ORDER = ("better", "equivalent", "alone", "not shown", "invalid")
"""What was shown comes before what was not."""


def answer(verdicts: Sequence[Json], figures: Mapping[str, Json]) -> list[Json]:
    """For each figure its label and a sentence."""
    by_figure: dict[str, list[Json]] = {}
    for verdict in verdicts:
        by_figure.setdefault(cast("str", verdict["figure"]), []).append(verdict)
    return [
        {"figure": name, "label": figures[name]["label"], "text": _sentence(group)} for name, group in by_figure.items()
    ]


def _sentence(group: Sequence[Json]) -> str:
    clauses: dict[tuple[str, ...], list[Json]] = {}
    for verdict in group:
        clauses.setdefault(_kind(verdict), []).append(verdict)
    kinds = sorted(clauses, key=lambda kind: ORDER.index(kind[0]))
    text = "; ".join(_clause(kind, clauses[kind], alone=len(kinds) == 1) for kind in kinds)
    return text + "."


def _kind(verdict: Json) -> tuple[str, ...]:
    """What two verdicts must share to stand in one clause."""
    call, winner, runner_up = (str(verdict[key]) for key in ("call", "winner", "runner_up"))
    if call == "better":
        return (call, winner)
    if call == "equivalent":
        level = {winner, *cast("Sequence[str]", verdict["level"])}
        measured = cast("Sequence[str]", verdict["contenders"])
        return (call, f"all {len(level)}") if len(level) == len(measured) > 2 else (call, *sorted(level))  # noqa: PLR2004
    if call == "not shown":
        return (call, *sorted((winner, runner_up))) if verdict["runner_up"] else ("alone", winner)
    return (call,)


def _clause(kind: tuple[str, ...], members: Sequence[Json], *, alone: bool) -> str:
    place = "at every load" if alone and len(members) > 1 else "at " + places([_at(each) for each in members])
    if members[0]["at"] == {}:
        place = ""
    names = kind[1:]
    text = {
        "better": lambda: f"{names[0]} is best {place} ({_against(members)})",
        "equivalent": lambda: f"{formatting.listed(names)} are level {place}",
        "alone": lambda: f"{names[0]} alone was measured {place}",
        "not shown": lambda: f"no winner is shown between {formatting.listed(names)} {place}",
        "invalid": lambda: f"no valid result {place}",
    }[kind[0]]()
    return text.strip()


def _against(members: Sequence[Json]) -> str:
    ratios = [cast("float", each["ratio"]) for each in members]
    least, most = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    span = least if least == most else f"{least} to {most}"
    rivals = list(dict.fromkeys(str(each["runner_up"]) for each in members))
    return f"{span} times {' and '.join(rivals)}"


def _at(verdict: Json) -> Mapping[str, object]:
    return cast("Mapping[str, object]", verdict["at"])


def places(settings: Sequence[Mapping[str, object]]) -> str:
    """`100, 500 and 2,000 connections` where only one number differs; else each place in full."""
    texts = [formatting.setting(each) for each in settings]
    heads = [text.partition(" ") for text in texts]
    if len({tail for _, _, tail in heads}) == 1 and all(head[:1].isdigit() for head, _, _ in heads):
        return f"{formatting.listed([head for head, _, _ in heads])} {heads[0][2]}"
    return formatting.listed(texts)
