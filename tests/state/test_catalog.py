"""The catalog is stored atomically, and instance numbers are never assigned twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.durable import write_atomic
from headrace.errors import StateDamaged
from headrace.model.codec import dump, load
from headrace.model.definitions import PipelineDef, SinkDef, StreamDef
from headrace.model.schema import INT, Field, Schema
from headrace.model.status import StateChange
from headrace.state.catalog import CATALOG_VERSION, Catalog, CatalogFile, PipelineRecord
from headrace.state.lifecycle import TRANSITIONS
from headrace.state.state_dir import DROPPED, stream_directory
from tests import strategies

STREAM = StreamDef("Sensors", Schema((Field("x", INT),)), None, 0, "files", "json", {"path": "/data"})
SINK = SinkDef("Out", "memory", {})

_changes = st.builds(StateChange, st.sampled_from(list(TRANSITIONS)), strategies.texts, st.floats(0, 2e9))
_records = st.builds(
    PipelineRecord,
    strategies.pipelines,
    st.lists(_changes, min_size=1, max_size=3).map(tuple),
    st.dictionaries(strategies.texts, strategies.texts, max_size=2),
)


@settings(max_examples=25)
@given(st.lists(strategies.streams, max_size=2), st.lists(strategies.sinks, max_size=2), st.lists(_records, max_size=2))
def test_a_catalog_is_read_as_it_was_saved(
    streams: list[StreamDef], sinks: list[SinkDef], records: list[PipelineRecord]
) -> None:
    catalog = Catalog()
    for stream in streams:
        catalog = catalog.with_stream(stream)
    for sink in sinks:
        catalog = catalog.with_sink(sink)
    for record in records:
        catalog = catalog.with_pipeline(record)
    assert load(Catalog, dump(catalog)) == catalog
    assert all(r.definition.instance < catalog.next_instance for r in records)


def test_names_are_found_without_case_and_kept_as_declared(tmp_path: Path) -> None:
    file = CatalogFile(tmp_path)
    assert file.read() == Catalog()
    file.save(Catalog().with_stream(STREAM).with_sink(SINK))
    again = file.read()
    assert again.stream("SENSORS") == STREAM
    assert again.sink("out") == SINK
    assert again.stream_names() == ("Sensors",)
    assert again.without("stream", "sensorS").without("sink", "OUT") == Catalog()
    assert again.stream("other") is None


@given(strategies.pipelines, strategies.pipelines)
@settings(max_examples=20)
def test_an_instance_number_is_never_assigned_twice(first: PipelineDef, second: PipelineDef) -> None:
    catalog = Catalog().with_pipeline(PipelineRecord(first)).with_pipeline(PipelineRecord(second))
    for name in (first.name, second.name):
        catalog = catalog.without("pipeline", name)
    assert not catalog.pipelines
    assert catalog.next_instance == max(first.instance, second.instance) + 1


class Crash(Exception):
    pass


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_while_saving_leaves_the_old_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = CatalogFile(tmp_path)
    old = Catalog().with_stream(STREAM)
    file.save(old)

    def crash(*args: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(f"headrace.base.durable.os.{step}", crash)
        with pytest.raises(Crash):
            file.save(old.with_sink(SINK))
    assert file.read() == old
    assert sorted(os.listdir(tmp_path)) == ["catalog.json", "catalog.previous.json"]


def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for data in (b"long enough to show", b"", b"new"):
        write_atomic(path, data)
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b"\xff", b'{"streams": []}', b'{"streams": {"a": 3}}',
        b'{"version": %d}' % (CATALOG_VERSION + 1),
        b'{"streams": {"a": {"name": "a", "schema": {"fields": [{"name": "x", "type": "INTT"}]}}}}',
    ],
)  # fmt: skip
def test_a_damaged_catalog_is_an_error_and_not_an_empty_one(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "catalog.json").write_bytes(text)
    with pytest.raises(StateDamaged):
        CatalogFile(tmp_path).read()


def test_a_catalog_with_any_bit_flipped_is_an_error_and_never_another_catalog(tmp_path: Path) -> None:
    file = CatalogFile(tmp_path)
    file.save(Catalog().with_stream(STREAM).with_sink(SINK))
    whole = (tmp_path / "catalog.json").read_bytes()
    for place in range(whole.index(b"\n")):
        (tmp_path / "catalog.json").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StateDamaged):
            CatalogFile(tmp_path).read()
    (tmp_path / "catalog.json").write_bytes(whole.splitlines()[0])  # as earlier versions wrote it
    assert CatalogFile(tmp_path).read() == file.catalog


def test_a_missing_catalog_is_an_error_if_there_was_one(tmp_path: Path) -> None:
    streams, declared = tmp_path / "streams" / "sensors", tmp_path / "declared"
    streams.mkdir(parents=True)
    with pytest.raises(StateDamaged) as caught:
        CatalogFile(tmp_path).read()
    assert caught.value.params["path"] == str(tmp_path / "catalog.json")
    declared.mkdir()
    file = CatalogFile(declared)
    file.read()
    file.save(Catalog().with_stream(STREAM))  # declared, and never run: it has no directory yet
    (declared / "catalog.json").unlink()
    with pytest.raises(StateDamaged):
        CatalogFile(declared).read()
    (declared / "catalog.json").mkdir()
    with pytest.raises(StateDamaged):
        CatalogFile(declared).read()


def test_the_catalog_before_the_newest_change_is_kept(tmp_path: Path) -> None:
    file = CatalogFile(tmp_path)
    file.read()
    first, second = Catalog().with_stream(STREAM), Catalog().with_stream(STREAM).with_sink(SINK)
    for catalog in (first, second):
        file.save(catalog)
    (tmp_path / "catalog.previous.json").replace(tmp_path / "catalog.json")
    assert CatalogFile(tmp_path).read() == first


def test_only_a_stream_that_was_dropped_is_marked(tmp_path: Path) -> None:
    file = CatalogFile(tmp_path)
    directory = stream_directory(tmp_path, "sensors")
    directory.mkdir(parents=True)
    file.save(Catalog().with_stream(STREAM))
    file.save(Catalog().with_stream(STREAM).with_sink(SINK))
    assert not (directory / DROPPED).exists()
    file.save(Catalog())
    assert (directory / DROPPED).exists()
