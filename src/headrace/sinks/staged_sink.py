"""Sinks that send the rows of an epoch to another system in one step, such as a database transaction.

Tasks stage Arrow files in a directory (`headrace.sinks.staging`), with the protocol of `headrace.sinks.file_sink`. The
driver writes a manifest. From then on the epoch will be delivered, whatever fails. Then, where a file sink renames
staged files, `DeliveryTarget.deliver` sends their rows. If it fails, the manifest and the rows stay, and the same epoch
is delivered again: by a retry, by the epoch's next run, or as an epoch that the sink owes.

So `deliver` may be called several times for one key, even after it succeeded, when the staged files may be gone. A
target that is exactly once records the key in the same transaction as the rows, and looks for it there first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headrace.base.faults import fault_point
from headrace.base.options import option, text
from headrace.sinks.file_sink import FileSink, FileTask, damaged
from headrace.sinks.owner_mark import OwnerMark
from headrace.sinks.sink_kind import Checkpoints, KnowsWriters, SinkKey, SinkSettings, SinkWriter
from headrace.sinks.sink_paths import STAGING, check_directory
from headrace.stores.store_options import require_local

READ_ROWS = 1000  # at once: as many as one request of the http sink has by default


@dataclass(frozen=True, slots=True)
class StagedSettings(SinkSettings):
    """Options of every sink whose rows tasks stage in a directory that readers of the sink never see."""

    staging: str = option(
        text,
        help="the directory where tasks stage rows until they are committed; all machines must see it "
        "(default: in the state directory)",
    )


def check_staging(settings: StagedSettings) -> None:
    """Raise UnwritablePath unless the staging directory can be used, if the user named one."""
    if settings.staging is not None:
        require_local(settings.staging, "staging")
        check_directory(settings.staging)


class StagedRows:
    """The rows of one epoch, in the order in which tasks staged them. Reads one file at a time."""

    def __init__(self, files: Sequence[Path], manifest: str, taken: Callable[[], None] = lambda: None) -> None:
        """`taken` is called whenever the target has taken some rows."""
        self.files, self._manifest, self._taken = tuple(files), manifest, taken

    @property
    def gone(self) -> Path | None:
        """A staged file that was deleted: an earlier delivery has succeeded, or someone deleted it. None if all are
        there."""
        return next((path for path in self.files if not path.exists()), None)

    def require(self) -> None:
        """Raise StateDamaged if staged files are gone, for an epoch that is not delivered."""
        if (path := self.gone) is not None:
            raise damaged(self._manifest, f"{path} was staged, is not delivered and is gone")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows."""
        for path in self.files:
            with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    for at in range(0, batch.num_rows, READ_ROWS):
                        yield batch.slice(at, READ_ROWS)
                        self._taken()


class DeliveryTarget(Protocol):
    """The system that rows are sent to. One thread at a time uses it. It connects when it is first used, and raises
    SinkUnavailable when it cannot, or another SinkFailed when a retry cannot help."""

    def deliver(self, key: SinkKey, rows: StagedRows, count: int) -> None:
        """Send the rows of an epoch. Raises EpochMismatch if the target has other rows under this key."""
        ...

    def ahead(self, key: SinkKey) -> int:
        """How many later epochs of the same instance and checkpoint the target has."""
        ...

    def rewind(self, key: SinkKey) -> None:
        """Remove the rows of these epochs."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


def write_rows(table: pa.Table, path: Path) -> None:
    """Write an Arrow IPC stream."""
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)


def staged_task(
    sink: str, settings: StagedSettings, prepared: Callable[[pa.Table], pa.Table] = lambda table: table
) -> FileTask:
    """The task side: stages rows as `prepared` returns them."""
    return FileTask(Path(settings.staging), sink, lambda table, path: write_rows(prepared(table), path), private=True)


class StagedSink(FileSink):
    """The driver side; see the module."""

    private = True

    def __init__(self, staging: Path, sink: str, guarantee: str, target: DeliveryTarget) -> None:
        super().__init__(staging, sink, "sent")
        self.guarantee, self._target = guarantee, target

    @property
    def owner_mark(self) -> OwnerMark | None:
        """None: each hub stages in its own state directory."""
        return None

    def writers(self, checkpoints: Checkpoints) -> set[SinkWriter]:
        """Those that the target knows, if it knows any (`KnowsWriters`), and those that have staged rows."""
        known = super().writers(checkpoints)
        return known | self._target.writers(checkpoints) if isinstance(self._target, KnowsWriters) else known

    def ahead(self, key: SinkKey) -> int:
        return super().ahead(key) + self._target.ahead(key)

    def rewind(self, key: SinkKey) -> None:
        """The target comes first: while it has later epochs, `ahead` counts them."""
        self._target.rewind(key)
        super().rewind(key)

    def close(self) -> None:
        self._target.close()

    def _roll_forward(self, key: SinkKey, files: Mapping[str, str], rows: int) -> None:
        manifest = self.paths.shown(self.paths.manifest(key))
        with self.output.local(f"{STAGING}/{name}" for name in files) as paths:
            self._target.deliver(key, StagedRows(paths, manifest, self._step), rows)
        fault_point("between-delivery-and-cleanup")

    def _step(self) -> None:
        self.steps += 1
