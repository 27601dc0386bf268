"""Expands `pos.*` and `pos.meta.*` to the fields of the struct."""

from __future__ import annotations

from headrace.base.unknown import unknown
from headrace.errors import UnknownColumn
from headrace.model.schema import Struct
from headrace.sql.bind.expression_binder import ExprBinder
from headrace.sql.parse.syntax import Name, Star
from headrace.sql.plan.expr import FieldOf
from headrace.sql.plan.logical import Named


def struct_fields(binder: ExprBinder, star: Star) -> list[Named]:
    """One output per field, without the excluded ones. Raises UnknownColumn if the qualifier is not a struct."""
    name = Name(star.at, star.qualifier)
    shown = ".".join(star.qualifier)
    subject = binder.bind(name)
    if not isinstance(subject.type, Struct):
        raise UnknownColumn(
            f"'{shown}' is {subject.type}, which has no fields",
            advice="Only a STRUCT has fields. Name the column without .*",
            span=binder.span(star.at),
            name=shown,
        )
    known = {f.name.lower() for f in subject.type.fields}
    for excluded in star.excluded:
        if excluded.parts[0].lower() not in known:
            raise unknown(
                UnknownColumn,
                "field",
                excluded.parts[0],
                [f.name for f in subject.type.fields],
                of=f"'{shown}'",
                span=binder.span(excluded.at),
            )
    skipped = {excluded.parts[0].lower() for excluded in star.excluded}
    return [
        Named(f.name, FieldOf(f.type, subject, f.name, at=star.at))
        for f in subject.type.fields
        if f.name.lower() not in skipped
    ]
