"""The rules for the Rust crates: which may depend on which, and what the pure ones must not use."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from rust_modules import TEST_MODULE, listed

ROOT = Path(__file__).resolve().parent.parent

FLOORS = {"base": 0, "subject": 1, "instrument": 1, "plimsoll": 2}
"""The folders of crates/, and their levels: a crate depends on lower levels only, never
sideways."""

WITHIN_BASE = {"reactor": {"sys"}, "sys": set(), "wire": set(), "measure": set()}
"""The one exception to "never sideways": the reactor uses sys and nothing else."""

PURE = ("crates/base/wire/src", "crates/base/measure/src", "crates/subject/serve/src/service")
"""Rooms without socket, clock, file or `unsafe`: time and randomness are arguments."""

IMPURE = re.compile(
    r"\bunsafe\b|\b(Instant|SystemTime)(::now| as )|\.elapsed\(\)|\brand::rng|\bthread_rng|\be?print(ln)?!"
)

IMPURE_PATH = re.compile(
    r"std::((fs|env|process|thread|os)\b|(net|time)(::\*)?$|net::(Tcp|Udp|To)|io::(\*|std(in|out|err)|Std))"
)
"""Items of the standard library, as paths: a list in braces is taken apart before."""

PURE_CRATES = {
    "base64",
    "hdrhistogram",
    "httpdate",
    "httparse",
    "mime_guess",
    "percent_encoding",
    "plimsoll_measure",
    "rand",
    "rand_distr",
    "serde",
    "thiserror",
}
"""The crates that a pure room may name: none of them opens a socket or a file, or reads a clock."""

NO_CRATES = {"std", "core", "alloc", "crate", "self", "super", "clippy"}
"""First steps of paths that are no crates of others: `std` has a rule of its own."""

PRIMITIVE = re.compile(r"[iuf]\d+|[iu]size|bool|char|str")

USE = re.compile(r"\buse ([^;]+);")
ALIAS = re.compile(r" as (\w+)")
FIRST_STEP = re.compile(r"(?<![\w:>.])(?:::)?([a-z_]\w*)::")
TEXT = re.compile(r"""//[^\n]*|\br(#*)".*?"\1|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)'""", re.DOTALL)
"""Comments, strings and characters."""
MODULE = re.compile(r"\bmod (\w+)")

PATH = re.compile(r"\bstd((?:::\w+)*)(?:::([{*]))?")

PACKAGES = {
    package["name"]: package
    for package in json.loads(
        subprocess.run(
            ["cargo", "metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )["packages"]
}


def home(package: str) -> tuple[str, str]:
    """The level and the name of a crate, from its folder."""
    parts = Path(PACKAGES[package]["manifest_path"]).relative_to(ROOT / "crates").parts
    return (parts[0], parts[1]) if len(parts) == 3 else (parts[0], parts[0])


def needs(package: str) -> set[str]:
    """What a crate of ours is built on; tests may use more."""
    return {need["name"] for need in PACKAGES[package]["dependencies"] if need["kind"] is None} & PACKAGES.keys()


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_crate_depends_on_lower_floors_only(package: str) -> None:
    floor, name = home(package)
    for need in needs(package):
        other_floor, other = home(need)
        if floor == other_floor == "base":
            assert other in WITHIN_BASE[name], f"within base, {name} must not depend on {other}"
        else:
            assert FLOORS[other_floor] < FLOORS[floor], f"{package} must not depend on {need}"


def test_every_crate_of_base_has_a_rule() -> None:
    assert {name for floor, name in map(home, PACKAGES) if floor == "base"} == WITHIN_BASE.keys()


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_unsafe_lives_in_sys_alone(package: str) -> None:
    if home(package) == ("base", "sys"):
        return
    targets = PACKAGES[package]["targets"]
    roots = [Path(target["src_path"]) for target in targets if {"lib", "bin"} & set(target["kind"])]
    assert roots
    for root in roots:
        assert "#![forbid(unsafe_code)]" in root.read_text(encoding="utf-8"), root.relative_to(ROOT)


def crates_named(code: str) -> set[str]:
    """The crates of others whose items a source names, by `use` or by whole paths."""
    code = TEXT.sub("", code)
    known, steps = NO_CRATES | set(MODULE.findall(code)), set(FIRST_STEP.findall(USE.sub("", code)))
    for used in USE.findall(code):
        known |= set(ALIAS.findall(used))
        for path in listed(f"{{{ALIAS.sub('', used)}}}", 1):
            steps.add(path[0])
            known |= set(path[1:])
    return {step for step in steps - known if not PRIMITIVE.fullmatch(step)}


def impure(source: str) -> list[str]:
    """What a pure room's source must not name, outside comments and its tests."""
    code = TEST_MODULE.split(source)[0].replace("#![forbid(unsafe_code)]", "")
    code = "\n".join(line for line in code.splitlines() if not line.lstrip().startswith("//"))
    paths = []
    for match in PATH.finditer(code):
        steps, more = ["std", *match[1].split("::")[1:]], match[2]
        endings = listed(code, match.end()) if more == "{" else [(more,)] if more else [()]
        paths += ["::".join((*steps, *ending)) for ending in endings]
    named = [match[0] for match in IMPURE.finditer(code)] + [path for path in paths if IMPURE_PATH.match(path)]
    return named + sorted(crates_named(code) - PURE_CRATES)


@pytest.mark.parametrize("room", PURE)
def test_a_pure_room_knows_no_socket_clock_or_file(room: str) -> None:
    sources = sorted((ROOT / room).rglob("*.rs"))
    assert sources
    for source in (source for source in sources if not source.stem.startswith("tests")):
        found = impure(source.read_text(encoding="utf-8"))
        assert not found, f"{source.relative_to(ROOT)}: {found}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("use std::{fmt, net::{Ipv6Addr, TcpStream}};", ["std::net::TcpStream"]),
        ("use std::{\n    fs::File,\n    io,\n};", ["std::fs::File"]),
        ("let began = std::time::Instant::now();", ["Instant::now"]),
        ("use std::time::{Duration, Instant as Clock};", ["Instant as "]),
        ("use std::net::*;", ["std::net::*"]),
        ("use std::net;", ["std::net"]),
        ('std::io::stdout().write_all(b"x");', ["std::io::stdout"]),
        ('println!("x");', ["println!"]),
        ("use mio::net::TcpStream;", ["mio"]),
        ("use tokio::{net, time};", ["tokio"]),
        ("use libc as c;", ["libc"]),
        ("let read = ::libc::read(0);", ["libc"]),
        ("let now = chrono::Utc::now();", ["chrono"]),
        ("use plimsoll_sys::clock;", ["plimsoll_sys"]),
        ('use serde::Serialize;\nmod inner;\nuse inner::range;\nrange::read("a::b");\nrand::random();', []),
        ("let quote = '\"';\nlibc::getpid(); // \"", ["libc"]),
        ("// unsafe\nuse std::io::Write;\nuse std::time::Instant;\nuse std::net::Ipv6Addr;", []),
        ("#[cfg(test)]\nmod tests {\n    use std::fs;\n}", []),
        ("#[cfg(test)]\nmod tests;\n\nuse std::fs;", ["std::fs"]),
    ],
)
def test_what_a_pure_room_must_not_name_is_found(source: str, found: list[str]) -> None:
    assert impure(source) == found
