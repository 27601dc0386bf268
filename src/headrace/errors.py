"""Every error a user can meet, as one tree.

    HeadraceError
    ├── UserError          the request or the SQL is wrong: the caller changes it
    │   └── SqlError       ... in SQL text: has a Span and prints a caret
    ├── DataError          the input does not match the declaration of the stream
    ├── ExternalError      the machine or another system failed
    └── InternalError      a bug in headrace: please report it

The branch says who has to act. An error has a `code` (stable, asserted by tests and listed in docs/errors.md),
`params` (the names and values it is about), `retry_helps`, and `advice` (what to do next). The prose may change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

# Matches the value of an option that may hold a secret. An error shows the line of the SQL, and may end up in a log.
_SECRET = re.compile(r"(\b\w*(?:token|password|secret|access_key|key\.pem)\w*`?\s*=\s*')((?:[^']|'')*)", re.IGNORECASE)
# Matches the password in an address, before its host or after a name.
_USER_INFO = re.compile(r"(://[^\s:/@']*:)([^\s@']+)(?=@)")
_PARAMETER = re.compile(r"(\b\w*password\w*=)([^\s&;']+)", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """`text` with stars for tokens and passwords that it shows. Its length stays the same."""
    for secret in (_SECRET, _USER_INFO, _PARAMETER):
        text = secret.sub(lambda m: m[1] + "*" * len(m[2]), text)
    return text


@dataclass(frozen=True, slots=True)
class Span:
    """A range of SQL text: character offsets [start, end) into `text`. `statement` counts from 1."""

    text: str
    start: int
    end: int
    statement: int | None = None

    @property
    def line(self) -> int:
        """Line number of the start, from 1."""
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """Column number of the start, from 1."""
        return self.start - (self.text.rfind("\n", 0, self.start) + 1) + 1

    def caret(self) -> str:
        """The source line with a caret line under it."""
        begin = self.text.rfind("\n", 0, self.start) + 1
        stop = self.text.find("\n", begin)
        source = without_secrets(self.text[begin : stop if stop >= 0 else len(self.text)])
        width = max(1, min(self.end, begin + len(source)) - self.start)
        number = str(self.line)
        pad = " " * (len(number) + 3 + self.start - begin)
        return f"{number} | {source}\n{pad}{'^' * width}"


# Words that only headrace has: an error that uses one explains it.
_OUR_WORDS = {
    "shared host": "The shared host computes pipelines in the tasks that read their stream; see docs/hosts.md.",
    "epoch host": "The epoch host runs a pipeline's query in Spark, once per epoch; see docs/hosts.md.",
    "dedicated host": "The dedicated host runs a pipeline's query as a Spark streaming query; see docs/hosts.md.",
    "lane": "A lane is one part of a pipeline's groups, with their state; see docs/glossary.md.",
    "Ring 0": "Ring 0 is the part of a pipeline without state; see docs/glossary.md.",
    "Ring 1": "Ring 1 is the part of a pipeline with state; see docs/glossary.md.",
}


class HeadraceError(Exception):
    """Base of all errors. Programs read `code` and `params`; people read `message` and `advice`.

    >>> try:
    ...     hub.sql("CREATE PIPELINE p INTO kept AS SELECT tmp FROM sensors")
    ... except headrace.errors.HeadraceError as problem:
    ...     print(problem.code, "-", problem.advice)
    UNKNOWN_COLUMN - Did you mean 'temp'?
    """

    code: ClassVar[str] = "HEADRACE_ERROR"
    retry_helps: ClassVar[bool] = False

    def __init__(self, message: str, *, advice: str = "", span: Span | None = None, **params: object) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.span = span
        self.params = params

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """The error as a user reads it: code, message, position, advice.

        >>> try:
        ...     hub.sql("CREATE PIPELINE p INTO kept AS SELECT tmp FROM sensors")
        ... except headrace.errors.HeadraceError as problem:
        ...     print(problem.render())
        [UNKNOWN_COLUMN] 'sensors' has no column 'tmp'
          at statement 1, line 1, column 39
          1 | CREATE PIPELINE p INTO kept AS SELECT tmp FROM sensors
                                                    ^^^
          Did you mean 'temp'?
        """
        lines = [f"[{self.code}] {self.message}"]
        if self.span is not None:
            where = f"line {self.span.line}, column {self.span.column}"
            if self.span.statement is not None:
                where = f"statement {self.span.statement}, {where}"
            lines += [f"  at {where}", *("  " + line for line in self.span.caret().split("\n"))]
        if self.advice:
            lines.append(f"  {self.advice}")
        said = f"{self.message} {self.advice}"
        lines += [f"  ({meaning})" for word, meaning in _OUR_WORDS.items() if re.search(rf"\b{word}", said)]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.advice, self.span, self.params))


def _rebuild(
    kind: type[HeadraceError], message: str, advice: str, span: Span | None, params: dict[str, object]
) -> HeadraceError:
    return kind(message, advice=advice, span=span, **params)


class UserError(HeadraceError):
    code = "USER_ERROR"


class SqlError(UserError):
    code = "SQL_ERROR"


class DataError(HeadraceError):
    code = "DATA_ERROR"


class ExternalError(HeadraceError):
    code = "EXTERNAL_ERROR"


class InternalError(HeadraceError):
    code = "INTERNAL_ERROR"


# --- SQL text and names -------------------------------------------------------------------------


class SyntaxProblem(SqlError):
    code = "SYNTAX_ERROR"


class UnknownStream(SqlError):
    code = "UNKNOWN_STREAM"


class UnknownSink(SqlError):
    code = "UNKNOWN_SINK"


class UnknownPipeline(SqlError):
    code = "UNKNOWN_PIPELINE"


class UnknownView(SqlError):
    code = "UNKNOWN_VIEW"


class RecursiveView(SqlError):
    code = "RECURSIVE_VIEW"


class UnknownColumn(SqlError):
    code = "UNKNOWN_COLUMN"


class UnknownType(SqlError):
    code = "UNKNOWN_TYPE"


class UnknownFormat(SqlError):
    code = "UNKNOWN_FORMAT"


class UnknownSource(SqlError):
    code = "UNKNOWN_SOURCE"


class UnknownSinkKind(SqlError):
    code = "UNKNOWN_SINK_KIND"


class UnknownMetadata(SqlError):
    code = "UNKNOWN_METADATA"


class UnknownOption(SqlError):
    code = "UNKNOWN_OPTION"


class BadOption(SqlError):
    code = "BAD_OPTION"


class MissingOption(SqlError):
    code = "MISSING_OPTION"


class AlreadyExists(SqlError):
    code = "ALREADY_EXISTS"


class InUse(SqlError):
    code = "IN_USE"


class CyclicStreams(SqlError):
    code = "CYCLIC_STREAMS"


class UnfinishedRows(SqlError):
    code = "UNFINISHED_ROWS"


class SchemaChanged(SqlError):
    code = "SCHEMA_CHANGED"


class StreamIdle(SqlError):
    code = "STREAM_IDLE"


class NoSink(SqlError):
    code = "NO_SINK"


class BadName(SqlError):
    code = "BAD_NAME"


class UnsupportedOnShared(SqlError):
    code = "UNSUPPORTED_ON_SHARED"


class UnsupportedOnEpoch(SqlError):
    code = "UNSUPPORTED_ON_EPOCH"


class UnsupportedStateful(SqlError):
    code = "UNSUPPORTED_STATEFUL"


class UnboundedSort(SqlError):
    code = "UNBOUNDED_SORT"


class NonDeterministic(SqlError):
    code = "NON_DETERMINISTIC"


class SparkRefused(SqlError):
    code = "SPARK_REFUSED"


class PlanningTimeout(SqlError):
    code = "PLANNING_TIMEOUT"


class ScriptErrors(SqlError):
    """Several statements of one script are wrong. `errors` lists their errors in order."""

    code = "SCRIPT_ERRORS"

    @property
    def errors(self) -> tuple[HeadraceError, ...]:
        found = self.params["errors"]
        assert isinstance(found, tuple)
        return found

    def render(self) -> str:
        return "\n\n".join([f"[{self.code}] {self.message}", *(e.render() for e in self.errors)])


class DuplicateName(SqlError):
    code = "DUPLICATE_NAME"


class AmbiguousColumn(SqlError):
    code = "AMBIGUOUS_COLUMN"


class UnknownFunction(SqlError):
    code = "UNKNOWN_FUNCTION"


class WrongArguments(SqlError):
    code = "WRONG_ARGUMENTS"


class TypeMismatch(SqlError):
    code = "TYPE_MISMATCH"


class BadLiteral(SqlError):
    code = "BAD_LITERAL"


class NotGrouped(SqlError):
    code = "NOT_GROUPED"


class MisplacedAggregate(SqlError):
    code = "MISPLACED_AGGREGATE"


class BadWindow(SqlError):
    code = "BAD_WINDOW"


class BadWatermark(SqlError):
    code = "BAD_WATERMARK"


class BadComputedColumn(SqlError):
    code = "BAD_COMPUTED_COLUMN"


class BadEmit(SqlError):
    code = "BAD_EMIT"


class RuleBrokePlan(InternalError):
    code = "RULE_BROKE_PLAN"


# --- files, directories, processes --------------------------------------------------------------


class MissingFile(UserError):
    code = "MISSING_FILE"
    retry_helps = True  # a missing mount may come back


class UnreadableFile(UserError):
    code = "UNREADABLE_FILE"
    retry_helps = True  # a missing mount may come back


class UnreadableDirectory(UserError):
    code = "UNREADABLE_DIRECTORY"
    retry_helps = True  # a missing mount may come back


class UnwritablePath(UserError):
    code = "UNWRITABLE_PATH"


class FileChanged(DataError):
    code = "FILE_CHANGED"


class HeaderMismatch(DataError):
    code = "HEADER_MISMATCH"


class SchemaMismatch(DataError):
    code = "SCHEMA_MISMATCH"


class DamagedStream(DataError):
    code = "DAMAGED_STREAM"


class BadSequence(DataError):
    code = "BAD_SEQUENCE"


class JournalDamaged(DataError):
    code = "JOURNAL_DAMAGED"


class JournalCut(DataError):
    code = "JOURNAL_CUT"


class JournalUnwritable(ExternalError):
    code = "JOURNAL_UNWRITABLE"
    retry_helps = True


class AddressInUse(ExternalError):
    code = "ADDRESS_IN_USE"
    retry_helps = True


class GatewayFailed(ExternalError):
    code = "GATEWAY_FAILED"
    retry_helps = True


class MissingPackage(UserError):
    code = "MISSING_PACKAGE"


class BadPlugin(UserError):
    code = "BAD_PLUGIN"


class BrokerUnreachable(ExternalError):
    code = "BROKER_UNREACHABLE"
    retry_helps = True


class BrokerFailed(ExternalError):
    code = "BROKER_FAILED"
    retry_helps = True


class BrokerDenied(UserError):
    code = "BROKER_DENIED"


class UnknownTopic(UserError):
    code = "UNKNOWN_TOPIC"


class StoreUnreachable(ExternalError):
    code = "STORE_UNREACHABLE"
    retry_helps = True


class StoreFailed(ExternalError):
    code = "STORE_FAILED"
    retry_helps = True


class StoreDenied(UserError):
    code = "STORE_DENIED"


class UnknownBucket(UserError):
    code = "UNKNOWN_BUCKET"


class DataLost(DataError):
    code = "DATA_LOST"


class StateInUse(UserError):
    code = "STATE_IN_USE"
    retry_helps = True


class StateTooNew(UserError):
    code = "STATE_TOO_NEW"


class StateDamaged(InternalError):
    code = "STATE_DAMAGED"


class DiskFull(ExternalError):
    code = "DISK_FULL"
    retry_helps = True


class StateUnavailable(ExternalError):
    """The operating system cannot read or write the state directory, for another reason than a full disk."""

    code = "STATE_UNAVAILABLE"
    retry_helps = True


class MissingJava(ExternalError):
    code = "MISSING_JAVA"


class SparkNotStarted(ExternalError):
    code = "SPARK_NOT_STARTED"
    retry_helps = True


class SessionMismatch(UserError):
    code = "SESSION_MISMATCH"


class HubClosed(UserError):
    code = "HUB_CLOSED"


class HubNotRunning(SqlError):
    code = "HUB_NOT_RUNNING"


class HubUnreachable(ExternalError):
    code = "HUB_UNREACHABLE"
    retry_helps = True


class StartTimeout(ExternalError):
    code = "START_TIMEOUT"
    retry_helps = True


# --- running pipelines --------------------------------------------------------------------------


class BadRecordFailure(DataError):
    code = "BAD_RECORD"


class EvaluationFailed(DataError):
    code = "EVALUATION_FAILED"


class OutputChanged(DataError):
    code = "OUTPUT_CHANGED"


class TableTooLarge(UserError):
    code = "TABLE_TOO_LARGE"


class QueryTimeout(UserError):
    code = "QUERY_TIMEOUT"


class ValueTooLarge(SqlError):
    code = "VALUE_TOO_LARGE"


class OutOfMemory(UserError):
    code = "OUT_OF_MEMORY"


class OverBudget(UserError):
    code = "OVER_BUDGET"


class WorkerDied(ExternalError):
    code = "WORKER_DIED"


class EpochTimeout(ExternalError):
    code = "EPOCH_TIMEOUT"
    retry_helps = True


class TooManyGroups(UserError):
    code = "TOO_MANY_GROUPS"


class TooManyValues(UserError):
    code = "TOO_MANY_VALUES"


class PipelineFailed(UserError):
    code = "PIPELINE_FAILED"


class StreamFailed(InternalError):
    code = "STREAM_FAILED"
    retry_helps = True  # errors of Spark itself have this code too


class SinkFailed(ExternalError):
    code = "SINK_FAILED"
    retry_helps = True


class SinkUnavailable(SinkFailed):
    """The sink has no space, or its file system is unavailable. The stream waits for it; no rows are lost."""

    code = "SINK_UNAVAILABLE"


class SinkMismatch(SinkFailed):
    """The table that a sink writes to does not fit the pipeline's output."""

    code = "SINK_MISMATCH"
    retry_helps = False


class SinkRefused(SinkFailed):
    """The server refuses the sink: wrong credentials, missing permission, a value that it does not accept."""

    code = "SINK_REFUSED"
    retry_helps = False


class MissingInput(InternalError):
    code = "MISSING_INPUT"
    retry_helps = True  # the epoch is not committed and runs again


class BarrierOverlap(InternalError):
    code = "BARRIER_OVERLAP"


class DuplicateBarrier(InternalError):
    code = "DUPLICATE_BARRIER"


class SurplusBarrier(InternalError):
    code = "SURPLUS_BARRIER"


class UnknownInput(InternalError):
    code = "UNKNOWN_INPUT"


class BadSavepoint(UserError):
    code = "BAD_SAVEPOINT"


class SavepointTooSmall(UserError):
    code = "SAVEPOINT_TOO_SMALL"


class SavepointTimeout(ExternalError):
    code = "SAVEPOINT_TIMEOUT"
    retry_helps = True


class EpochMismatch(ExternalError):
    code = "EPOCH_MISMATCH"


class SinkAhead(UserError):
    code = "SINK_AHEAD"


class IllegalTransition(InternalError):
    code = "ILLEGAL_TRANSITION"


class StopTimeout(ExternalError):
    code = "STOP_TIMEOUT"
    retry_helps = True


class WrongChannel(InternalError):
    code = "WRONG_CHANNEL"


# --- requests to a hub --------------------------------------------------------------------------


class BadRequest(UserError):
    code = "BAD_REQUEST"


class NoSuchAddress(UserError):
    code = "NO_SUCH_ADDRESS"


class MethodNotAllowed(UserError):
    code = "METHOD_NOT_ALLOWED"


class WrongHost(UserError):
    code = "WRONG_HOST"


class WrongOrigin(UserError):
    code = "WRONG_ORIGIN"


class Unauthorized(UserError):
    code = "UNAUTHORIZED"


class ReadOnlyToken(UserError):
    code = "READ_ONLY_TOKEN"


class TokenRequired(UserError):
    code = "TOKEN_REQUIRED"


class RequestTooLarge(UserError):
    code = "REQUEST_TOO_LARGE"


class TooManyRequests(ExternalError):
    code = "TOO_MANY_REQUESTS"
    retry_helps = True


class NotReady(ExternalError):
    """A stream or a pipeline that should run does not run yet. `errors` has one error for each of them."""

    code = "NOT_READY"
    retry_helps = True

    @property
    def errors(self) -> tuple[HeadraceError, ...]:
        found = self.params.get("errors", ())
        assert isinstance(found, tuple)
        return found

    def render(self) -> str:
        return "\n".join([super().render(), *(e.render() for e in self.errors)])


def kind_of(text: str) -> type[HeadraceError] | None:
    """The class of the error that `text` starts with, as `render` writes it. None if it is not an error of headrace."""
    if not text.startswith("["):  # every commit asks for every pipeline, and hardly any has failed
        return None
    code = text[1:].split("]", 1)[0]
    kinds: list[type[HeadraceError]] = [HeadraceError]
    for kind in kinds:
        if kind.code == code:
            return kind
        kinds += kind.__subclasses__()
    return None


def may_pass(text: str) -> bool:
    """True unless the error with this text has a code that says a retry cannot help."""
    kind = kind_of(text)
    return kind is None or kind.retry_helps or kind is InternalError  # Spark has an INTERNAL_ERROR of its own
