"""Errors of sources and sinks: files, journals, brokers, object stores, tables, and the packages for them."""

from __future__ import annotations

from headrace.errors.error_tree import DataError, ExternalError, UserError


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
    retry_helps = True  # a permission may be granted again


class UnknownTopic(UserError):
    code = "UNKNOWN_TOPIC"
    retry_helps = True  # a cluster that changes its leader may not know it for a moment


class StoreUnreachable(ExternalError):
    code = "STORE_UNREACHABLE"
    retry_helps = True


class StoreFailed(ExternalError):
    code = "STORE_FAILED"
    retry_helps = True


class StoreDenied(UserError):
    code = "STORE_DENIED"
    retry_helps = True  # a permission may be granted again


class UnknownBucket(UserError):
    code = "UNKNOWN_BUCKET"


class DataLost(DataError):
    code = "DATA_LOST"


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


class SinkAhead(UserError):
    code = "SINK_AHEAD"


class SinkTakenOver(UserError):
    """A restored hub writes to the sink now, and this hub has the state from before."""

    code = "SINK_TAKEN_OVER"
