"""Errors of running streams and pipelines."""

from __future__ import annotations

from headrace.errors.error_tree import DataError, ExternalError, InternalError, SqlError, UserError


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
    retry_helps = True


class EpochTimeout(ExternalError):
    code = "EPOCH_TIMEOUT"
    retry_helps = True


class TooManyGroups(UserError):
    code = "TOO_MANY_GROUPS"


class TooManyValues(UserError):
    code = "TOO_MANY_VALUES"


class PipelineFailed(UserError):
    code = "PIPELINE_FAILED"


class ReaderTaken(UserError):
    code = "READER_TAKEN"


class StreamFailed(InternalError):
    code = "STREAM_FAILED"
    retry_helps = True  # errors of Spark itself have this code too


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


class EpochMismatch(ExternalError):
    code = "EPOCH_MISMATCH"


class WrongChannel(InternalError):
    code = "WRONG_CHANNEL"
