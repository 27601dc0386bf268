"""Rows as messages for a broker: a topic and a value each. Tasks make them, so that the driver only sends bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadOption, SinkMismatch
from headrace.exec.duck import run
from headrace.model.program import Meaning
from headrace.model.schema import BINARY, STRING, Schema
from headrace.sinks.in_process import oldest_within
from headrace.sinks.jsonl import json_object, never_null

_CHUNK, _CHUNK_BYTES = 65_536, 16 << 20  # rows and bytes of rows that are converted at once


@dataclass(frozen=True, slots=True)
class RowMessages:
    """How rows become messages. The topic is `topic`, or the value of the column `topic_column`, which the value leaves
    out. With `text` the value is the only other column, with `json` an object of them."""

    format: Literal["json", "text"] = "json"
    ignore_nulls: bool = True
    topic: str = ""
    topic_column: str | None = None

    def prepared(self, table: pa.Table) -> pa.Table:
        """The columns `topic` and `value` of the messages of `table`."""
        pieces, start = [], 0
        while start < table.num_rows:  # this bounds the memory for the texts of a large epoch
            piece = oldest_within(table.slice(start, _CHUNK), _CHUNK_BYTES)
            start += piece.num_rows
            pieces.append(self._messages(piece))
        return pa.concat_tables(pieces)

    def _messages(self, table: pa.Table) -> pa.Table:
        values = [name for name in table.schema.names if name != self.topic_column]
        if self.topic_column is None:
            constant: Any = pa.scalar(self.topic.encode(), pa.binary())
            topics: Any = pa.repeat(constant, table.num_rows)
        else:
            topics = _bytes(table.column(self.topic_column))
        if self.format == "text":
            value = _bytes(table.column(values[0]))
        else:
            positional = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
            fields = [(f.name, f"c{i}", f.type) for i, f in enumerate(table.schema) if f.name in values]
            sql = f"SELECT {json_object(fields, self.ignore_nulls, never_null(table))} AS value FROM rows"
            value = _bytes(run(Meaning(), sql, {"rows": positional}).column(0))
        columns: list[Any] = [topics, value]
        return pa.table(columns, names=["topic", "value"])

    def check_output(self, sink: str, option: str, output: Schema) -> None:
        """Raise SinkMismatch unless rows of this schema can be sent."""
        types = {field.name: field.type for field in output}
        if self.topic_column is not None and types.get(self.topic_column) != STRING:
            raise SinkMismatch(
                f"sink {sink} needs a column {self.topic_column} of type STRING",
                advice=f"The pipeline has the columns {', '.join(output.names)}. Correct {option}.",
                sink=sink,
                column=self.topic_column,
            )
        values = [name for name in output.names if name != self.topic_column]
        if self.format == "text" and (len(values) != 1 or types[values[0]] not in (STRING, BINARY)):
            raise SinkMismatch(
                f"sink {sink} has format = 'text', and the pipeline has the columns {', '.join(values)} for the value",
                advice="Select exactly one column for the value, of type STRING or BINARY.",
                sink=sink,
            )


def require_one(owner: str, fixed: str | None, column: str | None, name: str) -> None:
    """Raise BadOption unless exactly one of the options `name` and `name`_column is given."""
    if (fixed is None) == (column is None):
        raise BadOption(
            f"{owner} needs either the option '{name}' or '{name}_column'",
            advice=f"{name} is the same for all rows; {name}_column names a column of type STRING.",
            option=name,
        )


def _bytes(column: Any) -> Any:
    """Bytes of a column of strings or bytes. A NULL is empty."""
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        column = column.cast(pa.large_string()).cast(pa.large_binary())
    return pc.fill_null(column.cast(pa.binary()), b"")
