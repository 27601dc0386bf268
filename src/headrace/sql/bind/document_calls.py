"""Binds from_json and schema_of_json: their types come from literals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import UnknownType, WrongArguments
from headrace.exec.kernels.json_schemas import schema_of_json
from headrace.model.schema import STRING, Array, DataType, Map, Struct, parse_type
from headrace.sql.functions.document_functions import unreadable
from headrace.sql.parse.syntax import Apply
from headrace.sql.plan.expr import Call, Expr, Literal

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder


def bind_from_json(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """from_json(text, schema). The schema is a literal or schema_of_json of one."""
    if len(args) != 2:
        if len(args) == 3:
            binder.unsupported(f"{name} with options", "Leave the options out.", args[2].at)
        return None
    kind = _schema(binder, name, args[1])
    refused = unreadable(kind)
    if refused is not None:
        binder.unsupported(f"{name} with {refused}", "Read this field as STRING.", args[1].at)
    call = binder.call(name, (binder.coerce(args[0], STRING), args[1]), node.at)
    assert isinstance(call, Call)
    return Call(kind, name, call.args, at=node.at)


def _schema(binder: ExprBinder, name: str, schema: Expr) -> DataType:
    text = schema.value if isinstance(schema, Literal) and schema.type == STRING else None
    if text is None:
        binder.mismatch(f"the schema of {name} is a string literal", "Write 'a INT, b STRING'.", schema.at)
    for spelled in (text, f"STRUCT<{text}>"):
        try:
            kind = parse_type(spelled)
        except UnknownType:
            continue
        if isinstance(kind, Array | Map | Struct):
            return kind
    if text.lstrip().startswith("{"):
        binder.unsupported(f"{name} with a schema in JSON", "Write the columns as 'a INT, b STRING'.", schema.at)
    binder.mismatch(
        f"{text!r} is not a schema", "Write the columns as 'a INT, b STRING', or a type as 'ARRAY<INT>'.", schema.at
    )


def bind_schema_of_json(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """schema_of_json of a literal: a literal."""
    if len(args) == 2:
        binder.unsupported(f"{name} with options", "Leave the options out.", args[1].at)
    if len(args) != 1:
        raise WrongArguments(f"{name} takes one argument", advice="Pass the JSON text.", span=binder.span(node.at))
    text = args[0].value if isinstance(args[0], Literal) and args[0].type == STRING else None
    if text is None:
        binder.mismatch(f"{name} takes a string literal", "Write the JSON text as a literal.", node.at)
    found = schema_of_json(text)
    if found is None:
        binder.mismatch(f"{text!r} is not JSON with a schema", "Correct the JSON text.", args[0].at)
    return Literal(STRING, found, at=node.at)
