"""How records are declared: what checks them, and takes the schemas' descriptions from docstrings.

mypy checks a record where it is made, pydantic where it is read or built from other data.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, with_config

Form = TypeVar("Form")
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
"""Making one takes a millisecond, using it microseconds."""

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
    )

    def to_json(self) -> dict[str, object]:
        """As it is written: numbers, texts, lists and dictionaries."""
        return self.model_dump(mode="json")


def record_of(form: type[Form], value: object) -> Form:
    """Check that a value has a form, and return it as that record.

    Raises pydantic's `ValidationError` where it has another.
    """
    if form not in _ADAPTERS:
        _ADAPTERS[form] = TypeAdapter(form)
    checked: Form = _ADAPTERS[form].validate_python(value)
    return checked
