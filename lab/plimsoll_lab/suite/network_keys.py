"""The keys of the tables that say where parts run, and over what links."""

from __future__ import annotations

from plimsoll_lab.suite.key import REQUIRED, Key, Keys

LINK: Keys = {
    "rate": Key(
        kind="bit rate", default="no limit", example='"100Mbit"', means="Bits a second of each direction of a link."
    ),
    "delay": Key(kind="duration", default='"0"', example='"1ms"', means="From departure to arrival, one way."),
    "jitter": Key(
        kind="duration",
        default='"0"',
        example='"1ms"',
        means="The delay varies evenly by up to this much either way; it is at most the delay.",
    ),
    "order": Key(
        kind="choice",
        default='"kept"',
        example='"free"',
        means='Whether packets with jitter overtake each other: "kept" (they do not) or "free". It needs a `jitter`.',
    ),
    "loss": Key(kind="share", default='"0"', example='"0.1%"', means="The probability that a packet is lost."),
    "queue": Key(
        kind="count",
        default="the link's round trip in full frames, at least 100",
        example="50",
        means="The packets that wait to be sent; further ones are dropped. It needs a `rate`.",
    ),
}
"""What each direction of a link does; `plimsoll link` checks the values once more."""

WHOLE_PATH: Keys = {
    "rtt": Key(
        kind="duration",
        default="as the links have it",
        example='"50ms"',
        means="The round trip of a whole path, divided evenly over its links; in place of `delay`. Our "
        "emulator delays the packets.",
    ),
    "path_loss": Key(
        kind="share",
        default="as the links have it",
        example='"1%"',
        means="The loss of a whole path, each way, divided evenly over its links; in place of `loss`. Our "
        "emulator drops the packets.",
    ),
}

NETWORK: Keys = {
    "topology": Key(
        kind="text",
        default='"single,2" with `rtt` or `path_loss`',
        example='"single,3"',
        means='"single,N": N hosts on a switch; "linear,N": N switches in a row, a host each; "dumbbell,N": N hosts '
        "on each of two switches. Hosts are h1, h2, and so on.",
    ),
    "addresses": Key(
        kind="count",
        default="1",
        example="4",
        means="Source addresses of each host, 1 to 250; generators use them in turn.",
    ),
    "backend": Key(
        kind="choice",
        default='"tap"',
        example='"kernel"',
        means='Who carries the links: "tap", Plimsoll\'s emulator, or "kernel", its bridges, with htb and netem '
        "where a link is shaped.",
    ),
    "congestion": Key(
        kind="text",
        default="as this machine has it",
        example='"cubic"',
        means="The congestion control of TCP on all hosts, by the kernel's name for it.",
    ),
}
"""Beside these a network takes the keys of a link, for all its links, and those of a whole path."""

NETWORK_LINK: Keys = {
    "ends": Key(
        kind="pair",
        default=REQUIRED,
        example='["h1", "s1"]',
        means="What the link joins: hosts h1 to h250 and switches s1, s2, and so on.",
    ),
    "reverse": Key(
        kind="link",
        default="as the other way",
        example='{ rate = "10Mbit" }',
        means="The same keys for the way from the second end to the first; they replace all others.",
    ),
}
"""Beside these a link takes its own keys; what it leaves out it takes from [network]."""

PLACE: Keys = {
    "server": Key(kind="host", default="the first host", example='"h1"', means="The host of the server."),
    "load": Key(
        kind="hosts",
        default="the second host",
        example='["h2", "h3"]',
        means='The hosts of the generators: one, a list, or a number such as "8 hosts". They share connections, '
        "requests and rate. Their requests begin together, once the connections of all are up; those of a count with "
        "`barrier` only.",
    ),
    "cpus": Key(
        kind="cpus",
        default="all CPUs of its host, for each part",
        example='{ server = "0", load = "1" }',
        means="The CPUs that all processes of a part keep to, by its name: `server`, `load`, or a role's.",
    ),
}

ROLE: Keys = {
    "name": Key(
        kind="name",
        default=REQUIRED,
        example='"forwarder"',
        means="The part's name; other parts write `role:NAME` for its address.",
    ),
    "kind": Key(
        kind="choice",
        default=REQUIRED,
        example='"forward"',
        means='What it is: "load", "server", "forward" or "command"; its further keys depend on it.',
    ),
    "on": Key(kind="host", default="the local host; required in a network", example='"h1"', means="Its host."),
    "measured": Key(
        kind="switch",
        default="true of a load",
        example="true",
        means="Whether a load's requests count in the figures. One that does not ends when the measured ones have.",
    ),
    "active": Key(
        kind="choice",
        default="true",
        example='"when named"',
        means='Whether it takes part: true, false, or "when named": only where another part names it.',
    ),
}
"""Beside these a role takes the keys of its kind."""
