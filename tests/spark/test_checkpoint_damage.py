"""Damaged files of a checkpoint are named, whatever Spark says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import DiskFull, StateDamaged, kind_of
from headrace.spark.causes import from_state, in_short
from headrace.spark.checkpoint_damage import damaged_files, state_damage
from headrace.spark.query_end import not_started
from tests.spark.test_causes import TRACEBACK, wrapped

SAID = "Spark said something else"


@pytest.fixture
def checkpoint(spark_of_the_run: SparkSession, tmp_path: Path) -> Path:
    """Files with checksums as Spark writes them: several pieces, one piece, empty."""
    spark_of_the_run.range(2000).selectExpr("CAST(id AS STRING)").coalesce(1).write.text(str(tmp_path / "state"))
    spark_of_the_run.range(1).selectExpr("'v1'").coalesce(1).write.text(str(tmp_path / "offsets"))
    assert len(list(tmp_path.rglob(".*.crc"))) == 4, "two files of rows, two of success"
    return tmp_path


def test_files_as_spark_wrote_them_are_intact(checkpoint: Path) -> None:
    assert list(damaged_files(checkpoint)) == []
    assert state_damage(checkpoint, SAID) == SAID


@pytest.mark.parametrize("how", ["flipped", "halved", "emptied", "removed", "longer"])
@pytest.mark.parametrize("place", ["state", "offsets"])
def test_a_damaged_file_is_named(checkpoint: Path, place: str, how: str) -> None:
    (file,) = (checkpoint / place).glob("part-*")
    data = file.read_bytes()
    if how == "removed":
        file.unlink()
    else:
        flipped = data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
        damaged = {"flipped": flipped, "halved": data[: len(data) // 2], "emptied": b"", "longer": data + b"x"}
        file.write_bytes(damaged[how])
    assert list(damaged_files(checkpoint)) == [str(file)]
    said = state_damage(checkpoint, SAID)
    assert kind_of(said) is StateDamaged
    assert str(file) in said


def test_an_error_that_only_names_a_call_is_not_the_cause() -> None:
    call = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.collectToPython."
    text = wrapped(TRACEBACK.format(raised=call) + "\nCaused by: java.lang.NullPointerException: key is null")
    assert in_short(text).startswith("java.lang.NullPointerException")
    assert from_state(Exception(text))


@pytest.mark.parametrize(
    ("root", "found"),
    [
        ("org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred", True),
        ("org.apache.hadoop.fs.ChecksumException: Checksum file not a length multiple of checksum size", True),
        ("java.io.FileNotFoundException: File file:/s/checkpoint/state/0/_stateSchema/default/0 does not exist", True),
        ("java.io.EOFException", True),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly\nCaused by: java.io.EOFException", False),
        ("java.io.FileNotFoundException: File file:/in/a.json does not exist", False),
        ("java.net.ConnectException: Connection refused", False),
    ],
)
def test_checksums_are_compared_when_a_file_may_be_the_cause(root: str, found: bool) -> None:
    assert from_state(Exception(wrapped(root))) is found


def test_a_start_that_fails_names_the_damaged_file_unless_its_error_has_a_code(checkpoint: Path) -> None:
    (file,) = (checkpoint / "offsets").glob("part-*")
    file.write_bytes(b"")
    failed = not_started(Exception("An error occurred while calling o1.start."), checkpoint)
    assert isinstance(failed, StateDamaged) and str(file) in str(failed)
    full = not_started(Exception("java.io.IOException: No space left on device"), checkpoint)
    assert isinstance(full, DiskFull)
