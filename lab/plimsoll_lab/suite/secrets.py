"""Which values of a suite are secrets, so that no file of a run holds them.

A secret is the value of a header such as `Authorization` or `Cookie`, the password of a URL, and
what a name such as `token` or `password` is set to: a setting, an option of a command, a variable
or a parameter of a URL. Words of a command may be scripts of a shell. Where a text can be read in
two ways, what is a secret in either is one.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.spec import Plan

HIDDEN = "[redacted]"
"""What a file holds in a secret's place."""
LEAST_LENGTH = 4
"""A shorter secret would be found in the middle of ordinary words."""

_NAMING = (
    r"passw|passphrase|(?<![a-z])(?<!by-)pass(?![a-z])|(?<=[_-])pwd(?![a-z])|secret|token|credential|basic[_-]auth"
    r"|(?:jwt(?:[_-]assertion)?|signature)(?![\w.-])|(?:api|private|access|signing|encryption)[_-]?key"
)
"""What a name of a secret has; `PWD` alone is the working directory (environ(7))."""
_NAME = rf"[\w.-]*(?:{_NAMING})[\w.-]*"
_HEADER_NAME = rf"(?:[\w.-]*header=)?(?:[\w-]*(?:auth|authorization|cookie)|{_NAME})"
_WORD = r"""(?:'[^']*'|"(?:\\[\s\S]|[^"\\])*"|\\.|[^\s&;|<>()"'\\])+"""
"""A word of a shell's script, with its quotes."""
_NAMED = re.compile(_NAME, re.IGNORECASE)
_OPTION = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_HEADER = re.compile(rf"{_HEADER_NAME}:\s*(.+)", re.IGNORECASE | re.DOTALL)
_SETTING = re.compile(rf"{_NAME}=(.+)", re.IGNORECASE | re.DOTALL)
_SET = re.compile(rf"(?<![\w.-]){_NAME}=([^&\s\"']+)", re.IGNORECASE)
_PASSWORD_OF_URL = re.compile(r"(?<=[a-z0-9+.-])://([^/\s@]+)@", re.IGNORECASE)
_WORD_AFTER = re.compile(rf"(?<![\w.-])(?:{_NAME}=|--?{_NAME}\s+(?!-))({_WORD})", re.IGNORECASE)
_QUOTED_HEADER = re.compile(rf"""('{_HEADER_NAME}:\s*[^']+'|"{_HEADER_NAME}:\s*(?:\\[\s\S]|[^"\\])+")""", re.IGNORECASE)
_BEFORE_SCRIPT = re.compile(r"-\w*c")
"""Gives a shell its script (sh(1))."""
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
    found = {secret for value in values for secret in _secrets(value) if secret}
    # What such a name counts, as `--max-tokens 5`, is none.
    found = {secret for secret in found if len(secret) >= LEAST_LENGTH or not secret.isdecimal()}
    short = sorted(secret for secret in found if len(secret) < LEAST_LENGTH)
    if short:
        raise SuiteError(
            f"{source}: a secret, such as what a name with 'token' or 'password' is set to, has fewer than "
            f"{LEAST_LENGTH} characters, and other text in the run's files may have them too; use a longer one"
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
        yield from _in_element(value, _in_script)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if not isinstance(each, str):
                yield from _secrets(each)
            elif _NAMED.fullmatch(str(key).rpartition(".")[2]):
                yield each
            else:
                yield from _in_element(each, _in_text)
    elif isinstance(value, list | tuple):
        for before, each in zip((None, *value), value, strict=False):
            if isinstance(before, str) and isinstance(each, str):
                yield from _in_word(each, before)
            else:
                yield from _secrets(each)


def _in_word(word: str, before: str) -> Iterator[str]:
    """The secrets of a word of a command, after another one."""
    if _OPTION.fullmatch(before):
        yield word
    elif _BEFORE_SCRIPT.fullmatch(before):
        yield from _in_script(word)
    else:
        yield from _in_element(word, _in_script)


def _in_element(text: str, search: Callable[[str], Iterator[str]]) -> Iterator[str]:
    """The secrets of a text that may be one header or one setting as a whole."""
    header, setting = _HEADER.fullmatch(text.strip()), _SETTING.fullmatch(text)
    if header is not None:
        yield _SCHEME.sub("", header[1], count=1).strip()
    elif setting is None:
        yield from search(text)
    else:
        yield setting[1]
        # It may begin a script too, or the fields of a form: nothing shows which.
        yield from (each for each in search(text) if len(each) >= LEAST_LENGTH)


def _in_text(text: str) -> Iterator[str]:
    """What names are set to within a text, and the passwords of its URLs."""
    for match in _SET.finditer(text):
        yield match[1]
    for match in _PASSWORD_OF_URL.finditer(text):
        user, colon, password = match[1].partition(":")
        yield password if colon else user


def _in_script(text: str) -> Iterator[str]:
    """The same of what a shell may read: with options, quoted values and quoted headers."""
    found = list(_in_text(text))
    for word in _WORD_AFTER.findall(text):
        found += [_unquoted(word)] if _unquoted(word) in word else [_unquoted(word), word]
    for header in _QUOTED_HEADER.findall(text):
        found += [*_in_element(_unquoted(header), _in_text), *_in_element(header[1:-1], _in_text)]
    # A variable with a short name, such as $1, is no secret that is too short.
    yield from (each for each in found if len(each) >= LEAST_LENGTH or not each.startswith("$"))


def _unquoted(word: str) -> str:
    """What a shell makes of a word."""
    return "".join(shlex.split(word))
