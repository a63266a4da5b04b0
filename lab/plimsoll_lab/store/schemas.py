"""The JSON schemas of the records, made of their declarations.

`python -m plimsoll_lab.store.schemas` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary

RECORDS: dict[str, Any] = {"run": RunRecord, "summary": RunSummary, "trial": TrialRecord}
"""Each kind of record, by the name of its schema."""
HOME = Path(__file__).parent


class _Schema(GenerateJsonSchema):
    """Leaves out the titles that only repeat a key."""

    schema_dialect = "https://json-schema.org/draft/2020-12/schema"

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401 - pydantic's own type is private
        """A key is title enough."""
        del schema
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ANN401, FBT001 - pydantic's own signature
        """A key that a dictionary may lack is not required; of a dataclass every field is
        written.
        """
        if field["type"] == "typed-dict-field":
            return bool(field.get("required", total))
        return super().field_is_required(field, total)


def schema_of(kind: str) -> str:
    """The schema of a kind of record, as the text of its file."""
    made = TypeAdapter(RECORDS[kind]).json_schema(schema_generator=_Schema, mode="serialization")
    return json.dumps({"$schema": _Schema.schema_dialect, **made}, indent=2, ensure_ascii=False) + "\n"


def path_of(kind: str) -> Path:
    """Where the schema of a kind of record is kept."""
    return HOME / f"{kind}.schema.json"


if __name__ == "__main__":
    for each in RECORDS:
        path_of(each).write_text(schema_of(each), encoding="utf-8")
