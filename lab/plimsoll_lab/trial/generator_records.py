"""What the generators of a trial counted, as one record: merged summaries, and their windows."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from plimsoll_lab.hosts.host import Host
from plimsoll_lab.store.records import Json, ResultWarning
from plimsoll_lab.trial.events import in_own_time, last_event
from plimsoll_lab.trial.generator_plan import Generator

APART_TOLERATED, APART_TOLD = 0.01, 0.1
"""The part of the common window in which not every generator measured: above the first the lab
warns, from about the second on the merged summary does (crates/base/measure/src/merge.rs)."""


MERGE_S = 60.0
"""Merging takes milliseconds; a machine that is too busy for that within this has measured
nothing."""


def merge_summaries(binary: str, generators: Sequence[Generator], records: Path) -> tuple[Json, str | None]:
    """The record of the measured generators as of one, and why their summaries cannot be merged,
    where they cannot; the merging is the binary's, histograms and all.
    """
    first = generators[0]
    if len(generators) == 1:
        return first.record, None
    summaries = [_summary_in_own_time(each.summary, each.host) for each in generators if each.summary is not None]
    whole = len(summaries) == len(generators)
    # What went wrong is told by one that ended without a summary. 3 and 4 are verdicts on a whole
    # one; of the others any code but 0 comes first.
    silent = [each for each in generators if each.summary is None]
    wrong = [each for each in generators if each.record["exit_code"] not in {0, 3, 4}]
    decisive = (*silent, *wrong, first)[0]
    merged, refusal = _merge(binary, summaries, records) if whole else (None, None)
    record: Json = {
        "command": first.record["command"],
        "exit_code": decisive.record["exit_code"],
        "summary": merged,
        "stderr_tail": decisive.record["stderr_tail"],
        **{key: decisive.record[key] for key in ("lacked_memory",) if key in decisive.record},
        "generators": [
            {
                "name": each.name,
                "host": each.host.name,
                "command": each.record["command"],
                "exit_code": each.record["exit_code"],
                "stderr_tail": each.record["stderr_tail"],
                "summary": each.summary,
            }
            for each in generators
        ],
    }
    return record, refusal


def _summary_in_own_time(summary: Json, host: Host) -> Json:
    """A summary with its window by the lab's clock, as windows of several machines are to be
    united.
    """
    window = summary.get("window")
    if not isinstance(window, dict) or not host.clock_offset_s:
        return summary
    return {**summary, "window": in_own_time(window, host)}


def windows_record(generators: Sequence[Generator]) -> Json:
    """When each measured generator's window opened and closed, by the lab's clock, and how far
    apart they opened.
    """
    ends = [(each, _own_window(each)) for each in generators if each.measured and each.window]
    opened = [window["opened_unix_s"] for _, window in ends if "opened_unix_s" in window]
    rows = [
        {
            "generator": each.name,
            "host": each.host.name,
            "opened_unix_s": window.get("opened_unix_s"),
            "closed_unix_s": window.get("closed_unix_s"),
        }
        for each, window in ends
    ]
    return {"windows": rows, "start_spread_s": max(opened) - min(opened)} if len(opened) > 1 else {}


def _own_window(generator: Generator) -> dict[str, float]:
    """The ends of a generator's window, from its summary, as its figures are over them. Its events
    come when they are noticed, on a busy machine much later.
    """
    told = _summary_in_own_time(generator.summary or {}, generator.host).get("window")
    if isinstance(told, dict) and told.keys() >= {"opened_unix_s", "closed_unix_s"}:
        return {key: float(told[key]) for key in ("opened_unix_s", "closed_unix_s")}
    return {f"{kind.removeprefix('window_')}_unix_s": at for kind, at in generator.window.items()}


def _merge(binary: str, summaries: Sequence[Json], records: Path) -> tuple[Json | None, str | None]:
    """The summary of all, or why there is none. Its files are in the trial's folder for as long:
    one in the temporary folder would be left where the lab is killed.
    """
    files = [records / f"merge-{number}.json" for number in range(len(summaries))]
    try:
        for file, summary in zip(files, summaries, strict=True):
            file.write_text(json.dumps(summary), encoding="utf-8")
        command = [binary, "merge", *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MERGE_S)
    except subprocess.TimeoutExpired:
        return None, f"the summaries of the generators could not be merged within {MERGE_S:g} s"
    finally:
        for file in files:
            file.unlink(missing_ok=True)
    merged = last_event(done.stdout.splitlines(), "summary")
    if merged is None:
        return None, f"the summaries of the generators cannot be merged: {done.stderr.strip() or 'no answer'}"
    return merged, None


def apart_warnings(generators: Sequence[Generator]) -> list[ResultWarning]:
    """The warning of windows of one length that did not open together: their rate counts time in
    which some generators did not measure.
    """
    timed = [_own_window(each) for each in generators if each.measured and "--duration" in each.command]
    opened, closed = ([each[end] for each in timed if end in each] for end in ("opened_unix_s", "closed_unix_s"))
    if len(timed) < 2 or not len(opened) == len(closed) == len(timed):  # noqa: PLR2004 - one is never apart
        return []
    union_s = max(closed) - min(opened)
    apart = 1 - (min(closed) - max(opened)) / union_s if union_s > 0 else 0.0
    if not APART_TOLERATED < apart <= APART_TOLD:
        return []
    message = f"the generators measured together for {(1 - apart) * union_s:.3f} s of {union_s:.3f} s"
    remedy = "use a longer window, or let them begin together: without barrier = false, reconnect or the engine fork"
    return [ResultWarning(code="windows_apart", message=message, remedy=remedy)]
