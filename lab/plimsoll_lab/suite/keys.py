"""The keys of a suite's tables. The keys of networks are in `network_keys.py`. The keys of our own
servers, generators and forwarder are flags of the binary (`flags.py`), which describes them itself.
"""

from __future__ import annotations

from plimsoll_lab.suite.key import REQUIRED, Key, Keys
from plimsoll_lab.suite.spec import RunSettings, SearchSettings, VerdictSettings

_RUN, _VERDICT = RunSettings(), VerdictSettings()
_SEARCH = SearchSettings(over="load.rate", lowest=1, highest=2)

TOP: Keys = {
    "name": Key(
        kind="name",
        default=REQUIRED,
        example='"my-server"',
        means="The suite's short name: letters, digits, dots and dashes.",
    ),
    "question": Key(
        kind="text",
        default=REQUIRED,
        example='"How does my server answer as more connections ask?"',
        means="What the run answers, in your own words; it heads the report.",
    ),
    "capture": Key(
        kind="switch",
        default="false",
        example="true",
        means="Keeps the packets of the server's host, a file for each trial.",
    ),
    "processes": Key(
        kind="switch",
        default="false",
        example="true",
        means="Lists each process of the server with its CPU over the window, as top does; table `processes`.",
    ),
}

COMMAND: Keys = {
    "command": Key(
        kind="texts",
        example='["./my-server", "--port", "{port}"]',
        means="The program and its arguments, started without a shell in the folder from which the lab starts.",
    ),
    "ready": Key(
        kind="port",
        example='"tcp:{port}"',
        means="The server is ready once this port accepts a connection. A `command` without `{port}` needs it; of one "
        "with it, `tcp:{port}` is the default.",
    ),
    "protocol": Key(
        kind="choice",
        default='"echo"',
        example='"http"',
        means='What the part speaks: "echo" or "http".',
    ),
}
"""A server, or a role, that is a program of any kind."""

ATTACHED: Keys = {
    "address": Key(
        kind="address",
        example='"192.0.2.10:8080"',
        means="A server that already runs. The lab starts nothing, and does not meter its CPU and memory.",
    ),
    "protocol": COMMAND["protocol"],
}
"""A server that already runs."""

EXCLUDE: Keys = {
    "exclude": Key(
        kind="points",
        default="none",
        example='[{ "load.connections" = 64 }]',
        means="Leaves out each combination that has all settings of one of these tables.",
    ),
}

RUN: Keys = {
    "repeat": Key(
        kind="count",
        default=str(_RUN.repeat),
        example="12",
        means="Repetitions of each point. Each starts the server anew. Six are the fewest that show a difference.",
    ),
    "warm_up": Key(
        kind="duration",
        default="none",
        example='"500ms"',
        means="Time at the start of each trial, once the connections are up, that is not measured.",
    ),
    "order": Key(
        kind="choice",
        default=f'"{_RUN.order}"',
        example='"blocks"',
        means="Each block holds every point once, in a shuffled order. There is no other order.",
    ),
    "seed": Key(
        kind="count",
        default="drawn, and recorded",
        example="1",
        means="What the order of trials, the losses of emulated links and all resampling follow from.",
    ),
    "ready_timeout": Key(
        kind="duration",
        default=f'"{_RUN.ready_timeout:g}s"',
        example='"60s"',
        means="The longest time that a server takes until it accepts connections; after it the trial fails.",
    ),
    "trial_timeout": Key(
        kind="duration",
        default="follows from the load",
        example='"10m"',
        means="The longest time that one generator runs; after it the trial fails.",
    ),
}

VERDICT: Keys = {
    "compare": Key(
        kind="path",
        default="the contenders, else the first axis if it varies the server",
        example='"server.model"',
        means="The axis whose values compete.",
    ),
    "figures": Key(
        kind="figures",
        default=", ".join(f"`{each}`" for each in _VERDICT.figures) + "; of a gate the rate and the CPU",
        example='["completed_rate", "response_time_us.p99"]',
        means="The figures by which they are compared.",
    ),
    "margin": Key(
        kind="share",
        default=f'"{_VERDICT.margin:.0%}"',
        example='"2%"',
        means="Contenders whose whole interval lies within this difference are called equivalent.",
    ),
    "control": Key(
        kind="switch",
        default="false",
        example="true",
        means="Measures the first contender twice in each block, as an A/A control.",
    ),
    "baseline": Key(
        kind="text",
        default="none",
        example='"old"',
        means="The contender that every other one is compared with. The suite is then a gate.",
    ),
    "tolerance": Key(
        kind="share",
        default=f'"{_VERDICT.tolerance:.0%}"',
        example='"3%"',
        means="The loss that a gate accepts, as a part of the baseline's figure. It needs a `baseline`, which "
        "`lab gate` brings.",
    ),
}

SEARCH: Keys = {
    "over": Key(
        kind="choice",
        default=REQUIRED,
        example='"load.rate"',
        means='What the search varies: "load.connections" or "load.rate".',
    ),
    "range": Key(
        kind="loads",
        default=REQUIRED,
        example="[100, 60000]",
        means="The lowest load, which is tried first, and the highest that is ever tried.",
    ),
    "width": Key(
        kind="share",
        default=f'"{_SEARCH.width:.0%}"',
        example='"10%"',
        means="The relative distance of the two bounds at which the search ends.",
    ),
    "trials": Key(
        kind="count",
        default=str(_SEARCH.trials),
        example="3",
        means="The most trials that decide about one load; more than half of them have to agree.",
    ),
    "patience": Key(
        kind="duration",
        default=f'"{_SEARCH.patience_s / 3600:g}h"',
        example='"10m"',
        means="Time of trials after which a search ends with the bounds that it has.",
    ),
    "hold": Key(
        kind="duration",
        default=f'"{_SEARCH.lasting_s:g}s"',
        example='"5m"',
        means='Length of the two trials that show whether the answer lasts; "0" leaves them out.',
    ),
}

POINT: Keys = {
    "name": Key(kind="text", default="none", example='"case 1"', means="The point's name in tables and charts."),
}
"""Beside it a point takes settings by dotted path."""

REFERENCE: Keys = {
    "figure": Key(kind="figure", default=REQUIRED, example='"response_time_us.mean"', means="The figure it states."),
    "at": Key(kind="point", default=REQUIRED, example='{ "load.connections" = 8 }', means="The point it is about."),
    "value": Key(kind="value", default=REQUIRED, example='"1197us"', means="What the document says, with its unit."),
    "values": Key(
        kind="row",
        default="none",
        example='{ "elapsed_s" = "3s", "requests.completed" = "300" }',
        means="In place of `figure` and `value`, several of one point: a row of a document's table.",
    ),
    "source": Key(kind="text", default=REQUIRED, example='"paper, table 2"', means="Where it stands."),
    "text": Key(kind="text", default="none", example='"read off a chart"', means="A remark."),
}

CLAIM: Keys = {
    "name": Key(kind="text", default=REQUIRED, example='"twice the time at 64"', means="What is claimed, in words."),
    "source": Key(kind="text", default=REQUIRED, example='"paper, section 4"', means="Where it stands."),
    "figure": Key(kind="figure", default=REQUIRED, example='"response_time_us.mean"', means="The figure it is about."),
    "at": Key(kind="point", default=REQUIRED, example='{ "load.connections" = 64 }', means="The point it is about."),
    "over": Key(
        kind="point",
        default="none: the figure itself is claimed",
        example='{ "load.connections" = 8 }',
        means="The point whose figure it is divided by, block by block.",
    ),
    "against": Key(
        kind="points",
        default="none",
        example='[{ "load.connections" = 8 }, { "load.connections" = 1 }]',
        means="Two points whose ratio that ratio is divided by. It needs `over`.",
    ),
    "difference": Key(
        kind="switch",
        default="false",
        example="true",
        means="Whether the figure at `over` is subtracted, and with `against` that difference from this one, where "
        "each is a division otherwise.",
    ),
    "expect": Key(
        kind="range",
        default=REQUIRED,
        example='"1.5 to 3"',
        means="The claimed range: of a ratio a number, of the figure itself or a difference a value with its unit.",
    ),
    "free": Key(
        kind="text", default="none", example='"message size"', means="What the document leaves open, and your choice."
    ),
    "portable": Key(
        kind="switch",
        default="true with `over`, of a difference where its range ends at 0",
        example="true",
        means="Whether the claim holds on any hardware. Without it, a figure of other hardware is not judged.",
    ),
}

CHART: Keys = {
    "figure": Key(kind="figure", default=REQUIRED, example='"completed_rate"', means="The figure it draws."),
    "over": Key(
        kind="path",
        default=REQUIRED,
        example='"load.connections"',
        means='The setting along the axis, or the product of two: "load.connections * load.each".',
    ),
}
