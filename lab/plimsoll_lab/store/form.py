"""How records are declared: the configuration that checks them and takes the schemas' descriptions
from docstrings.

A record in memory is what it is on disk: a dictionary with a known form (`TypedDict`), which mypy
checks where it is made and pydantic where it is read. A trial, which nobody adds to, is a frozen
dataclass.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, with_config

Form = TypeVar("Form")
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
"""Making one takes a millisecond, using it microseconds."""

closed = with_config(ConfigDict(extra="forbid", use_attribute_docstrings=True))
"""A record that has no other keys."""
documented = with_config(ConfigDict(extra="allow", use_attribute_docstrings=True))
"""A record whose known keys are declared, and that may hold more: what a program or a setting
brings along."""


def record_of(form: type[Form], value: object) -> Form:
    """Check that a value has a form, and return it as that record.

    Raises pydantic's `ValidationError` where it has another.
    """
    if form not in _ADAPTERS:
        _ADAPTERS[form] = TypeAdapter(form)
    checked: Form = _ADAPTERS[form].validate_python(value)
    return checked
