"""The verdicts in sentences: one a figure, saying no more than was shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.report import words
from plimsoll_lab.store.records import Json


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
        call, winner, runner_up = (str(verdict[key]) for key in ("call", "winner", "runner_up"))
        key = {
            "better": (call, winner),
            "equivalent": (call, *sorted((winner, runner_up))),
            "not shown": (call,) if verdict["runner_up"] else ("alone", winner),
            "invalid": (call,),
        }[call]
        clauses.setdefault(key, []).append(verdict)
    order = ("better", "equivalent", "alone", "not shown", "invalid")
    parts = [
        _clause(key, members, everywhere=len(clauses) == 1)
        for key, members in sorted(clauses.items(), key=lambda each: order.index(each[0][0]))
    ]
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "." if parts[0].startswith(("the ", "no ")) else text + "."


def _clause(key: tuple[str, ...], members: Sequence[Json], *, everywhere: bool) -> str:
    place = "at every setting" if everywhere and len(members) > 1 else "at " + places([_at(each) for each in members])
    if members[0]["at"] == {}:
        place = ""
    text = {
        "better": lambda: f"{key[1]} is best {place} ({_against(members)})",
        "equivalent": lambda: f"{key[1]} and {key[2]} lead and are equivalent {place}",
        "alone": lambda: f"{key[1]} alone was measured {place}",
        "not shown": lambda: f"no winner is shown {place}",
        "invalid": lambda: f"no valid result {place}",
    }[key[0]]()
    return " ".join(text.split())


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
    texts = [words.setting(each) for each in settings]
    heads = [text.partition(" ") for text in texts]
    if len({tail for _, _, tail in heads}) == 1 and all(head[:1].isdigit() for head, _, _ in heads):
        return f"{words.listed([head for head, _, _ in heads])} {heads[0][2]}"
    return words.listed(texts)
