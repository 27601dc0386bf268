"""Files without a checksum are accepted from earlier versions, if they can be complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import StateDamaged
from headrace.model.definitions import StreamDef
from headrace.model.plan_version import PlanVersion
from headrace.model.schema import Schema
from headrace.state.checkpoint import checkpoint_id
from headrace.state.plans import PlanStore


def test_the_name_of_a_checkpoint_that_was_cut_is_refused_and_an_old_one_is_read(tmp_path: Path) -> None:
    made = checkpoint_id(tmp_path, "s")
    file = tmp_path / "checkpoint.id"
    sealed = file.read_bytes()
    for length in range(1, len(made)):
        file.write_bytes(sealed[:length])
        with pytest.raises(StateDamaged):
            checkpoint_id(tmp_path, "s")
    file.write_text(made)  # as earlier versions wrote it
    assert checkpoint_id(tmp_path, "s") == made


def test_a_pointer_that_was_cut_is_refused_and_an_old_one_is_read(tmp_path: Path) -> None:
    plans = PlanStore(tmp_path)
    stream = StreamDef("s", Schema(()), None, 0, "files", "json", {})
    for version in range(9, 13):
        plans.publish(PlanVersion(version, stream, ()))
    (tmp_path / "current").write_text("1")
    with pytest.raises(StateDamaged):
        plans.current()
    (tmp_path / "current").write_text("12")
    assert plans.current() == 12
