"""Errors of a hub as a whole: its state directory, savepoints, Spark and Java, opening and closing."""

from __future__ import annotations

from headrace.errors.error_tree import DataError, ExternalError, InternalError, SqlError, UserError


class DamagedStream(DataError):
    code = "DAMAGED_STREAM"


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
    """The operating system cannot read or write the state directory, for a reason other than a full disk."""

    code = "STATE_UNAVAILABLE"
    retry_helps = True


class DiskFailed(ExternalError):
    """The operating system cannot read or write a file that a Spark query uses: of a table, or one of Spark's own."""

    code = "DISK_FAILED"
    retry_helps = True


class ConstantNotEvaluated(ExternalError):
    """It is not known whether a constant of a statement has a value, so the statement cannot be planned."""

    code = "CONSTANT_NOT_EVALUATED"
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


class BadSavepoint(UserError):
    code = "BAD_SAVEPOINT"


class SavepointTooSmall(UserError):
    code = "SAVEPOINT_TOO_SMALL"


class SavepointTimeout(ExternalError):
    code = "SAVEPOINT_TIMEOUT"
    retry_helps = True


class IllegalTransition(InternalError):
    code = "ILLEGAL_TRANSITION"


class StopTimeout(ExternalError):
    code = "STOP_TIMEOUT"
    retry_helps = True
