"""A load beside the measured one that is none at all fails its trial; one that is slow does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from plimsoll_lab.trial.generators import failed_beside

CONNECTED = {"connections": {"requested": 2, "established": 2}}
REFUSED = {"connections": {"requested": 2, "established": 0}, "errors": {"connect": 2}}


@pytest.mark.parametrize(
    ("generator", "why"),
    [
        ({"summary": REFUSED}, "the role burst had no connection: connect"),
        ({"record": {"exit_code": 2, "stderr_tail": "error: no"}}, "exit code 2, saying: error: no"),
        ({"record": {"exit_code": -9, "stderr_tail": ""}}, "the role burst ended during the trial: killed by SIGKILL"),
        ({"record": {"exit_code": -15, "stderr_tail": ""}, "was_stopped": True}, None),
        ({"summary": CONNECTED, "record": {"exit_code": 1}}, None),
        ({"summary": CONNECTED | {"errors": {"status": 9}}, "record": {"exit_code": 1}}, None),
        ({"summary": {"connections": {"requested": 2, "established": 0}}, "was_stopped": True}, None),
        ({"summary": REFUSED, "measured": True}, None),
    ],
    ids=["refused", "crashed", "killed", "stopped", "idle", "not found", "slow to connect", "measured"],
)
def test_a_load_beside_the_measured_one_fails_the_trial_where_it_was_none(
    generator: dict[str, Any], why: str | None
) -> None:
    made = {"name": "burst", "measured": False, "summary": None, "record": {}, "was_stopped": False} | generator
    told = failed_beside([cast("Any", SimpleNamespace(**made))])
    assert told is None if why is None else told is not None and why in told
