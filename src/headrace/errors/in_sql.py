"""Errors in SQL text, and in the names and options that it uses."""

from __future__ import annotations

from headrace.errors.error_tree import HeadraceError, InternalError, SqlError


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
