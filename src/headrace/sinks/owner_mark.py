"""The mark in the directory of a file sink that names the hub which may write there, after a restore.

    <path>/_headrace/owners/<writer>.json

A restored hub writes under the checkpoint id of the hub that took the savepoint. If both ran, each row of new input
would be there twice. So a restored hub has an `Owner` in the directory of each stream, and leaves a mark in every file
sink: when it first uses the sink, or when it is restored with `--rewind`. A hub with the same checkpoint id and another
owner, or none, is refused (SINK_TAKEN_OVER). Where nothing was ever restored there are no marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from headrace.errors import SinkTakenOver, StateDamaged
from headrace.model.codec import dump, load
from headrace.model.stored import stored
from headrace.sinks.sink_kind import SinkKey
from headrace.sinks.sink_paths import SinkPaths, writing

OWNERS = "_headrace/owners"
OWNER = "owner.json"


@dataclass(frozen=True, slots=True)
class Owner:
    """A restored stream: a random id, and the state directory into which it was restored. It may replace the marks in
    `after`: those of the hub that took the savepoint, and those that sinks had when it was restored."""

    id: str
    state_dir: str
    after: tuple[str, ...] = ()


def owner_of(stream_directory: Path) -> Owner | None:
    """What a stream was restored as. None if it was not restored. Raises StateDamaged."""
    return stored(Owner, stream_directory / OWNER)


class OwnerMark:
    """The marks of one sink. `checkpoint` is the checkpoint id of a stream."""

    def __init__(self, paths: SinkPaths) -> None:
        self._paths = paths

    def place(self, checkpoint: str) -> str:
        """The path of the mark, as errors show it."""
        return self._paths.shown(self._name(checkpoint))

    def _name(self, checkpoint: str) -> str:
        return f"{OWNERS}/{self._paths.writer(SinkKey(checkpoint, 0, 0))}.json"

    def read(self, checkpoint: str) -> Owner | None:
        """The owner that the mark names. None without a mark. Raises StateDamaged."""
        name = self._name(checkpoint)
        with writing(self._paths):
            try:
                text = self._paths.output.read(name).decode("utf-8", "replace")
            except (FileNotFoundError, NotADirectoryError):  # without its directory, the sink says so when it writes
                return None
        try:
            return load(Owner, text)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise StateDamaged(
                f"the mark {self.place(checkpoint)} cannot be read",
                advice="It names the hub that may write to the sink. If no other hub writes there, delete it.",
                path=self.place(checkpoint),
            ) from problem

    def write(self, checkpoint: str, owner: Owner) -> None:
        """Make `owner` the only one that may write."""
        with writing(self._paths):
            self._paths.output.write(self._name(checkpoint), dump(owner).encode())

    def require(self, checkpoint: str, own: Owner | None) -> None:
        """Raise SinkTakenOver if another hub may write. A restored hub takes the sink over, if it may."""
        found = self.read(checkpoint)
        if own is not None and (found is None or found.id in own.after):
            self.write(checkpoint, own)
        elif found is not None and (own is None or found.id != own.id):
            mark, name = self.place(checkpoint), self._paths.sink
            raise SinkTakenOver(
                f"sink {name} belongs to another hub: its stream was restored from a savepoint into {found.state_dir}",
                advice=f"Nothing was written. Continue with {found.state_dir}, and move this state directory away: "
                f"both would write the same rows. If that hub is gone for good, delete {mark} and START a pipeline of "
                "the stream. What that hub wrote stays, so rows may come twice.",
                sink=name,
                path=mark,
            )


@runtime_checkable
class HasOwner(Protocol):
    """A driver side of a sink that may have marks. Optional."""

    @property
    def owner_mark(self) -> OwnerMark | None:
        """None if this sink keeps none."""
        ...
