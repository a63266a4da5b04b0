"""Which values of a suite are secrets, so that no file of a run holds them.

A secret is the value of a header such as `Authorization` or `Cookie`, the password of a URL, and
what a name such as `token` or `password` is set to: a setting, an option of a command, a variable
or a parameter of a URL.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.spec import Plan

HIDDEN = "[redacted]"
"""What a file holds in a secret's place."""
LEAST_LENGTH = 4
"""A shorter secret would be found in the middle of ordinary words."""

_NAME = r"[\w.-]*(?:passw|passphrase|secret|token|credential|api[_-]?key|private[_-]?key)[\w.-]*"
_NAMED = re.compile(_NAME, re.IGNORECASE)
_OPTION = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_HEADER = re.compile(
    rf"(?:authorization|proxy-authorization|cookie|[\w-]*auth|{_NAME}):\s*(.+)", re.IGNORECASE | re.DOTALL
)
_SET = re.compile(rf"(?<![\w.-]){_NAME}=([^&\s\"']+)", re.IGNORECASE)
_PASSWORD_OF_URL = re.compile(r"[a-z][a-z0-9+.-]*://([^/\s@]+)@", re.IGNORECASE)
_SCHEME = re.compile(r"(?:basic|bearer|digest|token|negotiate)\s+", re.IGNORECASE)
"""Of an Authorization header (RFC 9110, section 11.4): no secret, and what follows it is."""


def secrets_of(plan: Plan, *further: str | Sequence[str]) -> tuple[str, ...]:
    """Every secret of a plan, and of further texts and commands, the longest first."""
    tables = tomllib.loads(plan.suite.text)
    settings = [
        each
        for point in plan.points
        for each in (point.server, point.load, *(role.settings for role in point.roles), point.setting)
    ]
    return secrets_in([tables, *settings, *further], plan.suite.source)


def secrets_in(values: Sequence[object], source: str) -> tuple[str, ...]:
    """Every secret of some settings, texts and commands, the longest first."""
    found = {secret for value in values for secret in _secrets(value)}
    short = sorted(secret for secret in found if len(secret) < LEAST_LENGTH)
    if short:
        raise SuiteError(
            f"{source}: a secret has fewer than {LEAST_LENGTH} characters, and other text in the run's "
            "files may have them too; use a longer one"
        )
    return tuple(sorted({form for secret in found for form in _forms(secret)}, key=len, reverse=True))


def _forms(secret: str) -> set[str]:
    """A secret as it may be written: as it is, in a text of TOML or JSON, and in a shell's quotes
    (shlex.quote).
    """
    plain = {secret, json.dumps(secret, ensure_ascii=False)[1:-1]}
    return plain | {each.replace("'", "'\"'\"'") for each in plain}


def redact(value: object, secrets: Sequence[str]) -> object:
    """A record without secrets: in every text and key of it."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, Mapping):
        return {redact(key, secrets): redact(each, secrets) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact(each, secrets) for each in value]
    return value


def _secrets(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from _in_text(value)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(each, str) and _NAMED.fullmatch(str(key).rpartition(".")[2]):
                yield each
            else:
                yield from _secrets(each)
    elif isinstance(value, list | tuple):
        for before, each in zip((None, *value), value, strict=False):
            if isinstance(before, str) and isinstance(each, str) and _OPTION.fullmatch(before):
                yield each
            else:
                yield from _secrets(each)


def _in_text(text: str) -> Iterator[str]:
    header = _HEADER.fullmatch(text.strip())
    if header is not None:
        yield _SCHEME.sub("", header[1], count=1).strip()
        return
    for match in _SET.finditer(text):
        yield match[1]
    for match in _PASSWORD_OF_URL.finditer(text):
        user, colon, password = match[1].partition(":")
        yield password if colon else user
