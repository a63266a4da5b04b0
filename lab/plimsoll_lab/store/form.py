"""How records are declared: what checks them, and takes the schemas' descriptions from docstrings.

mypy checks a record where it is made, pydantic where it is read or built from other data.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, with_config
from pydantic_core import PydanticSerializationError

from plimsoll_lab.problem import Interrupted

Form = TypeVar("Form")
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
"""Making one takes a millisecond, using it microseconds."""
_INTERRUPTED = re.compile(r"Interrupted: signal (\d+)$")
"""What pydantic makes of an exception that a signal handler raises within a serializer: a text."""

YEAR_10000_UNIX_S = 253_402_300_800
UnixSeconds = Annotated[float, Field(ge=0, lt=YEAR_10000_UNIX_S)]
"""Seconds since 1970, of a year that a calendar has."""

closed = with_config(ConfigDict(extra="forbid", use_attribute_docstrings=True))
"""A record that has no other keys."""
documented = with_config(ConfigDict(extra="allow", use_attribute_docstrings=True))
"""A record whose known keys are declared, and that may hold more: what a program or a setting
brings along."""


class Record(BaseModel):
    """Fields with names, types and docstrings, and no others."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        populate_by_name=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
        defer_build=True,  # a command reads few of the forms, and building them all takes half of its start
    )

    def to_json(self) -> dict[str, object]:
        """As it is written: numbers, texts, lists and dictionaries."""
        try:
            return self.model_dump(mode="json")
        except PydanticSerializationError as error:
            interrupted = _INTERRUPTED.search(str(error))
            if interrupted is None:
                raise
            raise Interrupted(int(interrupted[1])) from None


def record_of(form: type[Form], value: object) -> Form:
    """Check that a value has a form, and return it as that record.

    Raises pydantic's `ValidationError` where it has another.
    """
    if form not in _ADAPTERS:
        _ADAPTERS[form] = TypeAdapter(form)
    checked: Form = _ADAPTERS[form].validate_python(value)
    return checked
