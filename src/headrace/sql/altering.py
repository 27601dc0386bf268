"""ALTER PIPELINE: the declaration of a pipeline with some of its parts changed.

The hub keeps the text of every declaration. ALTER changes that text, and the hub then handles it like CREATE OR
REPLACE, so both have the same effect, and SHOW CREATE shows what is in force.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import InternalError
from headrace.sql.parse.script import parse_statement
from headrace.sql.parse.statements import AlterPipeline, CreatePipeline


def altered(declared: str, change: AlterPipeline) -> CreatePipeline:
    """The statement `declared`, without a semicolon, with the change."""
    number = change.span.statement or 1
    text = declared
    for name in change.options:
        text = _with_option(text, name, change, number)
    if change.sinks:
        before = _parsed(text, number)
        assert before.into is not None, "a parsed statement says where its outlets are"
        text = text[: before.into.start] + change.sinks + text[before.into.end :]
    if change.query:
        text = text[: _parsed(text, number).query_start] + change.query
    return replace(_parsed(text, number), or_replace=True, if_not_exists=False)


def _with_option(text: str, name: str, change: AlterPipeline, number: int) -> str:
    """The text with one option set, in the place where it was or after the others."""
    before, place = _parsed(text, number), change.spans[name]
    setting = place.text[place.start : place.end]
    if name in before.spans:
        return text[: before.spans[name].start] + setting + text[before.spans[name].end :]
    if before.spans:
        end = max(span.end for span in before.spans.values())
        return f"{text[:end]}, {setting}{text[end:]}"
    assert before.into is not None, "a parsed statement says where its outlets are"
    end = before.into.end
    return f"{text[:end]} WITH ({setting}){text[end:]}"


def _parsed(text: str, number: int) -> CreatePipeline:
    found = parse_statement(text, number)
    if not isinstance(found, CreatePipeline):
        raise InternalError(f"the declaration of a pipeline is a {type(found).__name__}")
    return found
