"""The records of a run, and the schemas that are made of them."""

from __future__ import annotations

import json

import jsonschema
import pytest
from pydantic import ValidationError, field_serializer

from plimsoll_lab.problem import Interrupted
from plimsoll_lab.store.form import Record, record_of
from plimsoll_lab.store.records import ResultWarning
from plimsoll_lab.store.schemas import RECORDS, path_of, schema_of

WARNING = {"code": "steal", "message": "seen", "remedy": "wait"}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_schema_is_the_one_that_its_record_makes(kind: str) -> None:
    assert path_of(kind).read_text(encoding="utf-8") == schema_of(kind), "run python -m plimsoll_lab.store.schemas"


@pytest.mark.parametrize("kind", RECORDS)
def test_a_schema_is_valid_and_describes_every_field(kind: str) -> None:
    schema = json.loads(schema_of(kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert all("description" in each for each in schema["properties"].values())


@pytest.mark.parametrize("changed", [{"message": 7}, {"further": "key"}], ids=["another type", "an unknown key"])
def test_a_record_of_another_form_is_refused(changed: dict[str, object]) -> None:
    assert record_of(ResultWarning, WARNING) == ResultWarning(code="steal", message="seen", remedy="wait")
    with pytest.raises(ValidationError):
        record_of(ResultWarning, WARNING | changed)


class Short(Record):
    """A record that is being written when a signal comes."""

    number: int
    """Any."""

    @field_serializer("number")
    def _interrupt(self, _: int) -> int:
        raise Interrupted(2)


def test_a_signal_that_comes_while_a_record_is_written_is_one() -> None:
    with pytest.raises(Interrupted) as caught:
        Short(number=1).to_json()
    assert caught.value.number == 2
