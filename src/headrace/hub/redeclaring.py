"""Answers and errors for a CREATE of something that exists: whether it is the same, is kept, or loses its progress.

Pure text and comparison. `headrace.hub.draft` applies the statements.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import AlreadyExists, InUse, Span
from headrace.hub.results import Result
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.program import DedicatedQuery, PipelineProgram
from headrace.sources import SOURCES


def as_declared(kind: str, name: str) -> Result:
    """The answer to a CREATE that changes nothing."""
    return Result(f"{kind} {name} is as declared")


def same_pipeline(new: PipelineDef, declared: PipelineDef) -> bool:
    """True if a newly planned pipeline is the declared one, apart from its instance."""
    alike = replace(
        new,
        instance=declared.instance,
        buckets=declared.buckets,
        heir_of=declared.heir_of,
        generation=declared.generation,
        pooled=declared.pooled,
        spread=declared.spread,
        views=declared.views,
        fresh=declared.fresh,
    )
    if _same_unchecked(new.program, declared.program):
        alike = replace(alike, program=declared.program)
    return replace(alike, sql="") == replace(declared, sql="")


def _same_unchecked(new: PipelineProgram, declared: PipelineProgram) -> bool:
    """True if a program that Spark has not checked is the declared one. Such a program has no output and no conditions
    of Spark yet, so its text and its groups are compared. `headrace run` checks its script before Spark starts."""
    if len(new.output) or new.stream.lower() != declared.stream.lower() or new.meaning != declared.meaning:
        return False
    if new.dedicated is not None and declared.dedicated is not None:
        return _same_query(new.dedicated, declared.dedicated)
    if new.spark is None or declared.spark is None:
        return False
    mine, theirs = replace(new.spark, tables=(), staged=declared.spark.staged), replace(declared.spark, tables=())
    groups = new.ring1 is None or (new.ring0, new.ring1) == (declared.ring0, declared.ring1)
    return mine == theirs and groups


def _same_query(new: DedicatedQuery, declared: DedicatedQuery) -> bool:
    """True if a query for the dedicated host that Spark has not checked is the declared one. Spark chooses the output
    mode of a query without EMIT, and whether it is a DISTINCT."""
    inputs = [i.stream.lower() for i in new.inputs] == [i.stream.lower() for i in declared.inputs]
    mode = new.mode in ("append", declared.mode)
    return inputs and mode and (new.sql, new.strategy, new.limit) == (declared.sql, declared.strategy, declared.limit)


def kept(kind: str, name: str, same: bool) -> Result:
    """The answer to CREATE ... IF NOT EXISTS over something that exists."""
    if same:
        return as_declared(kind, name)
    return Result(
        f"{kind} {name} exists and was left as it is",
        warnings=(
            f"{kind} {name} is declared differently from this statement, which has no effect; SHOW CREATE "
            f"{kind.upper()} {name} shows what is declared",
        ),
    )


def lost_with(stream: StreamDef) -> str:
    """A sentence that says what is lost with the progress of a stream."""
    if stream.fed_by:
        return f"Rows of stream {stream.name} that were not read are deleted."
    if SOURCES[stream.source].pushed:
        return f"Records in the journal of stream {stream.name} that were not read are deleted."
    return (
        f"Stream {stream.name} loses its progress: a new stream over the same input reads all of it again (unless "
        "start = 'latest'), and sinks that keep rows get the old rows a second time."
    )


def replaced(stream: StreamDef) -> Result:
    """The answer to CREATE OR REPLACE STREAM over another definition."""
    return Result(f"replaced stream {stream.name}; it starts from the beginning", warnings=(lost_with(stream),))


def replaced_pipeline(new: PipelineDef, *, kept_state: bool) -> Result:
    """The answer to CREATE OR REPLACE PIPELINE over another definition: what became of its state."""
    if new.program.host != "dedicated" and new.program.ring1 is None and not kept_state:
        state = "it keeps no state, and gets the rows from now on"
    elif kept_state:
        state = "it continues with the state of the old one"
    else:
        state = "it starts without state: the open windows and groups of the old one are dropped and not emitted"
    return Result(f"replaced pipeline {new.name}; {state}")


def changed_options(old: StreamDef, new: StreamDef) -> Result:
    """The answer to CREATE OR REPLACE STREAM when the stream keeps its progress."""
    names = sorted(k for k in old.options.keys() | new.options.keys() if old.options.get(k) != new.options.get(k))
    options = ", ".join(f"{k} = '{new.options[k]}'" if k in new.options else f"{k} by default" for k in names)
    return Result(f"changed stream {new.name}: {options}; it continues where it was")


def replaced_view(name: str, pipelines: list[str]) -> Result:
    """The answer to CREATE OR REPLACE VIEW over another definition."""
    kept_by = (
        f"running pipelines keep the view as it was: {', '.join(pipelines)}; CREATE OR REPLACE PIPELINE plans it again",
    )
    return Result(f"replaced view {name}", warnings=kept_by if pipelines else ())


def exists(kind: str, name: str, span: Span, *, same_text: bool = False) -> AlreadyExists:
    """The error for a CREATE over another definition. With `same_text` only its plan is another one."""
    advice = f"Use CREATE OR REPLACE {kind.upper()}, or another name."
    if same_text:
        advice = (
            "Its text is the same, but it is planned differently now: this version of headrace, or the session, is not "
            f"the one that it was created with. CREATE OR REPLACE {kind.upper()} plans it again."
        )
    return AlreadyExists(
        f"{kind} {name} exists and is declared differently",
        advice=advice,
        span=span,
        name=name,
    )


def stream_exists(old: StreamDef, continues: bool, span: Span) -> AlreadyExists:
    """The error for a CREATE STREAM over another definition. `continues` if replacing it would lose nothing."""
    advice = (
        "CREATE OR REPLACE STREAM changes it; the stream continues where it was, with its pipelines."
        if continues
        else f"CREATE OR REPLACE STREAM, or another name, starts from the beginning. {lost_with(old)} "
        "To keep old and new rows apart, let the pipelines write to other sinks."
    )
    problem = exists("stream", old.name, span)
    problem.advice = advice
    return problem


def stream_in_use(old: StreamDef, users: list[str], span: Span) -> InUse:
    """The error for dropping or replacing a stream that pipelines or views read."""
    return InUse(
        f"stream {old.name} is read by {', '.join(users)}",
        advice=f"Drop those first. {lost_with(old)}",
        span=span,
        name=old.name,
        users=users,
    )
