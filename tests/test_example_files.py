"""The examples that a person copies: the workflow of the gate, and the forwarder as a service."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from document_commands import refusal, words
from laboratory import ROOT
from plimsoll_lab.report.gate import FILES

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (extra cluster)")

EXAMPLES = ROOT / "docs" / "examples"
EVENT = "github.event.pull_request"
EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")
GIVEN = {f"{EVENT}.base.sha": "1" * 40, f"{EVENT}.head.sha": "2" * 40}
"""What the workflow asks of GitHub, and an answer."""
ACTIONS = {
    "actions/checkout": {"fetch-depth", "repository", "path"},
    "actions/setup-python": {"python-version"},
    "actions/upload-artifact": {"name", "path"},
}
"""The actions that may stand in it, with the inputs that it uses."""


class Closed(BaseModel):
    """A part of a workflow with the keys that are used here, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Step(Closed):
    """An action or a script."""

    name: str | None = None
    condition: str | None = Field(default=None, alias="if")
    uses: Annotated[str, Field(pattern=r"^[\w-]+/[\w-]+@(v\d+(\.\d+)*|[0-9a-f]{40})$")] | None = None
    inputs: dict[str, str] = Field(default_factory=dict, alias="with")
    run: str | None = None

    @model_validator(mode="after")
    def _does_one_thing(self) -> Step:
        if (self.uses is None) == (self.run is None):
            raise ValueError("either an action or a script")
        return self


class Job(Closed):
    """What runs on one machine."""

    runs_on: Literal["ubuntu-latest"] = Field(alias="runs-on")
    timeout_minutes: Annotated[str, Field(pattern=r"^\d+$")] = Field(alias="timeout-minutes")
    steps: list[Step]


class Workflow(Closed):
    """The file."""

    name: str
    on: Literal["pull_request"]
    jobs: dict[Literal["gate"], Job]


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    text = (EXAMPLES / "gate.yml").read_text(encoding="utf-8")
    # Texts alone: YAML 1.1 reads the key `on` as a truth, and GitHub does not.
    return Workflow.model_validate(yaml.load(text, Loader=yaml.BaseLoader)).jobs["gate"].steps


def scripts(steps: list[Step]) -> list[str]:
    """The scripts, with what GitHub puts into them."""
    return [EXPRESSION.sub(lambda found: GIVEN[found[1]], step.run) for step in steps if step.run is not None]


def test_the_workflow_uses_known_actions_of_a_pinned_version(steps: list[Step]) -> None:
    used = [step for step in steps if step.uses is not None]
    assert len(used) >= 3
    for step in used:
        action, _, _ = (step.uses or "").partition("@")
        assert step.inputs.keys() <= ACTIONS[action], action


def test_the_scripts_of_the_workflow_are_scripts(steps: list[Step]) -> None:
    for script in scripts(steps):
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script


def test_the_commands_of_the_workflow_are_accepted(steps: list[Step]) -> None:
    lines = [line for script in scripts(steps) for line in script.replace("\\\n", " ").splitlines()]
    commands = [words(line) for line in lines if line.startswith("plimsoll ")]
    assert [command[:2] for command in commands] == [["lab", "gate"]]
    assert [(command, refusal(command)) for command in commands if refusal(command) is not None] == []
    (gate,) = commands
    assert {f"git:{revision}" for revision in GIVEN.values()} < set(gate), "both revisions are built"


def test_the_workflow_keeps_what_the_gate_writes(steps: list[Step]) -> None:
    """The summary that it shows is one that the gate was asked for, and lies in what is kept."""
    (gate,) = [script for script in scripts(steps) if "plimsoll lab gate" in script]
    (kept,) = [step.inputs["path"] for step in steps if (step.uses or "").startswith("actions/upload-artifact@")]
    shown = re.search(r"cat (\S+)/\*/(\S+)", scripts(steps)[-1])
    assert shown is not None
    assert f"{shown[1]}/" == kept == "runs/"
    assert shown[2] in {FILES[kind] for kind in re.findall(r"--summary (\w+)", gate)}
    after = steps[[step.run is not None and "lab gate" in step.run for step in steps].index(True) + 1 :]
    assert [step.name for step in after if "always()" not in (step.condition or "")] == [], "the page of a failed gate"


def test_the_command_of_the_service_is_accepted() -> None:
    unit = (EXAMPLES / "forward.service").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    program, *arguments = shlex.split(command)
    assert program.endswith("/plimsoll")
    assert refusal(arguments) is None
