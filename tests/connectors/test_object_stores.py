"""Files on an S3 server: a stream reads them, file sinks and delta write them, and every row is there once whatever
dies. Wrong credentials, a missing bucket, a revoked permission and a server that is away are coded errors."""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headrace.errors import BadOption, HeadraceError, MissingFile, MissingOption, UnwritablePath
from headrace.sinks import SINKS
from headrace.sinks.file_sink import FileSink, FileTask
from headrace.sinks.joiners import LineJoiner
from headrace.sinks.outputs import ObjectOutput
from headrace.sinks.rolling import RollingSink
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.state.state_dir import StateDir
from headrace.stores.object_store import ObjectStore
from headrace.stream.retries import RetryPolicy
from tests.connectors.s3_server import BUCKET, S3Server
from tests.shared.mini import Crash, Mini
from tests.shared.test_secrets import holding
from tests.sinks.test_files import rows, write_text

_places = itertools.count()
RETRY_NEVER = ", retries = '0'"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    made = S3Server(tmp_path_factory.mktemp("s3") / "log")
    yield made
    made.stop()


class Run:
    """A hub with a stream of objects and sinks on the same server."""

    def __init__(self, server: S3Server, root: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=600, longest=600))
        patch.setattr("headrace.sources.files.STORE_POLL", 0.0)
        patch.setattr("headrace.sources.files.STORE_SHARE", 0.0)
        self.server, self.mini = server, Mini(root / "state", patch)
        self.place = f"t{next(_places)}"
        self.store = server.store(self.place)

    def put(self, low: int, high: int) -> None:
        lines = [json.dumps({"a": i, "k": f"k{i % 3}"}) for i in range(low, high)]
        self.store.put(f"in/{low}.jsonl", ("\n".join(lines) + "\n").encode())

    def stream(self, more: str = "") -> str:
        path = f"s3://{BUCKET}/{self.place}/in"
        return (
            f"CREATE OR REPLACE STREAM s (a BIGINT, k STRING) WITH (source = 'files', format = 'json', "
            f"path = '{path}', {self.server.options}{more})"
        )

    def sink(self, name: str, kind: str, more: str = "") -> str:
        path = f"s3://{BUCKET}/{self.place}/{name}"
        return f"CREATE SINK {name} WITH (type = '{kind}', path = '{path}', {self.server.options}{more})"

    def files(self, name: str, extension: str) -> list[str]:
        found = [info.name for info in self.store.objects(name)]
        return [f for f in found if f.endswith(extension) and "_headrace" not in f]

    def lines(self, name: str) -> Counter[int]:
        texts = [self.store.read(file) for file in self.files(name, ".jsonl")]
        return Counter(json.loads(line)["a"] for text in texts for line in text.splitlines())

    def parquet(self, name: str) -> Counter[int]:
        """What pyarrow's own reader of directories sees."""
        found: Any = ds.dataset(self.store.path(name), format="parquet", filesystem=self.store.files)
        return Counter(found.to_table(columns=["a"]).column("a").to_pylist())

    def again(self) -> None:
        """Let a stream that waits try at once, and run what there is to do."""
        self.mini.hub.runtime("s").supervisor.try_now()
        self.mini.drain()


@pytest.fixture
def run(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    made = Run(server, tmp_path, monkeypatch)
    yield made
    made.mini.hub.close(drain=False)


def test_objects_are_read_and_written_once_whatever_place_of_an_epoch_the_hub_dies_at(run: Run) -> None:
    from deltalake import DeltaTable

    from headrace.sinks.delta import delta_options

    run.put(0, 20)
    run.mini.hub.sql(run.stream())
    for name, kind, more in (
        ("l", "jsonl", ""), ("p", "parquet", ", partition_by = 'k'"), ("d", "delta", ", partition_by = 'k'"),
    ):  # fmt: skip
        run.mini.hub.sql(run.sink(name, kind, more))
    run.mini.hub.sql(
        "CREATE PIPELINE one INTO l, p AS SELECT a, k FROM s; CREATE PIPELINE two INTO d AS SELECT * FROM s"
    )
    sent = 20
    for place in ("logged", "tasks", "lanes", "committed"):
        run.put(sent, sent + 20)
        sent += 20
        run.mini.checkpoint.crash = place
        with pytest.raises(Crash):
            run.mini.drain()
        run.mini.crash()
        run.mini.drain()
    wanted = Counter(range(sent))
    assert run.lines("l") == wanted
    assert run.parquet("p") == wanted
    table = DeltaTable(run.store.url("d"), storage_options=delta_options(run.store.access)).to_pyarrow_table()
    assert Counter(table.column("a").to_pylist()) == wanted and set(table.column("k").to_pylist()) == {"k0", "k1", "k2"}
    left = [info.name for info in run.store.objects() if "/staging/" in info.name]
    assert left == []
    assert "exactly once" in run.mini.hub.sql("EXPLAIN PIPELINE one")[0].render()


STEPS = ("put", "put_file", "fetch", "copy", "delete", "delete_directory", "objects", "entries", "info")


class Dying:
    """Lets the requests of an object store die at step `at`: each counts twice, before and after it."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __enter__(self) -> None:
        self._patches = [mock.patch.object(ObjectStore, name, self._step(getattr(ObjectStore, name))) for name in STEPS]
        for patch in self._patches:
            patch.start()

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()

    def _step(self, real: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            self._tick()
            found = real(*args, **kwargs)
            self._tick()
            return found

        return step

    def _tick(self) -> None:
        if self._left == 0:
            raise Crash
        self._left -= 1


def shown(output: ObjectOutput) -> list[int]:
    names = [n for n in output.below("", without="_headrace") if n.endswith(".txt")]
    return sorted(int(line) for name in names for line in output.read(name).split())


@pytest.mark.parametrize("rolling", [False, True])
def test_a_crash_before_and_after_every_request_of_a_commit_loses_and_doubles_nothing(
    server: S3Server, rolling: bool
) -> None:
    def opened(output: ObjectOutput) -> FileSink:
        return RollingSink(output, "s", "txt", LineJoiner(False), 1, None) if rolling else FileSink(output, "s", "txt")

    seen: set[tuple[int, ...]] = set()
    for step in range(200):
        output = ObjectOutput(server.store(f"crash{rolling}/{step}"))
        task = FileTask(output, "s", write_text)

        def stage(epoch: int, *parts: tuple[int, ...], task: FileTask = task) -> list[Staged]:
            return [task.stage(rows(*part), SinkKey("c", 1, epoch)) for part in parts]

        opened(output).commit(SinkKey("c", 1, 0), stage(0, (10, 20)))
        try:
            with Dying(step):
                opened(output).commit(SinkKey("c", 1, 1), stage(1, (1, 2), (3,)))
        except Crash:
            seen.add(tuple(shown(output)))
            opened(output).commit(SinkKey("c", 1, 1), stage(1, (3,), (1, 2)))
            assert shown(output) == [1, 2, 3, 10, 20]
            assert [n for n in output.below("_headrace") if "/staging/" in n] == []
        else:
            break
    assert step > 10
    assert {(10, 20), (1, 2, 3, 10, 20)} <= seen and (rolling or (1, 2, 10, 20) in seen)


def test_a_rewind_takes_back_the_objects_of_later_epochs(server: S3Server) -> None:
    output = ObjectOutput(server.store("rewind"))
    sink, task = FileSink(output, "s", "txt"), FileTask(output, "s", write_text)
    for epoch in range(3):
        sink.commit(SinkKey("c", 1, epoch), [task.stage(rows(epoch), SinkKey("c", 1, epoch))])
    assert sink.ahead(SinkKey("c", 1, 0)) > 0
    sink.rewind(SinkKey("c", 1, 0))
    assert sink.ahead(SinkKey("c", 1, 0)) == 0 and shown(output) == [0]


def test_a_server_that_is_away_or_refuses_is_waited_for_and_nothing_is_lost(run: Run) -> None:
    run.put(0, 10)
    run.mini.hub.sql(f"{run.stream()}; {run.sink('l', 'jsonl', RETRY_NEVER)}")
    run.mini.hub.sql("CREATE PIPELINE p INTO l AS SELECT a FROM s")
    run.mini.drain()
    assert run.lines("l") == Counter(range(10))
    run.put(10, 20)
    for number, (bad, good) in enumerate(
        ((run.server.relay.cut, run.server.relay.restore), (run.server.revoke, run.server.permit))
    ):
        for place in ("logged", "tasks"):  # the store goes away before the tasks read, and before the commit
            run.put(100 * number + (30 if place == "tasks" else 20), 100 * number + (40 if place == "tasks" else 30))
            run.mini.checkpoint.crash = place
            with pytest.raises(Crash):
                run.mini.drain()
            run.mini.crash()
            bad()
            try:
                run.mini.drain()
                status = run.mini.hub.streams["s"].status()
                wanted = ("STORE_UNREACHABLE", "STORE_DENIED", "SINK_UNAVAILABLE")
                assert status.state in ("retrying", "dead") and any(code in str(status) for code in wanted), status
            finally:
                good()
            if run.mini.hub.streams["s"].status().state == "dead":
                run.mini.hub.sql("START PIPELINE p")
            run.again()
    assert run.lines("l") == Counter([*range(40), *range(120, 140)])


def test_a_stream_reads_parquet_and_compressed_objects_by_pattern_and_knows_their_path(run: Run) -> None:
    table = pa.table({"a": list(range(1000)), "k": ["x"] * 1000, "unused": list(range(1000))})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=100)
    run.store.put("tables/one/t.parquet", sink.getvalue())
    run.store.put("tables/_hidden/t.parquet", b"not read")
    run.store.put("csv/a.csv.gz", gzip.compress(b"1,x\n2,y\n"))
    url = f"s3://{BUCKET}/{run.place}"
    run.mini.hub.sql(f"""
        CREATE SINK out WITH (type = 'kept');
        CREATE STREAM s (a BIGINT, k STRING, p STRING METADATA FROM 'path', t TIMESTAMP METADATA FROM
          'modification_time') WITH (source = 'files', format = 'parquet', path = '{url}/**/*.parquet',
          {run.server.options});
        CREATE PIPELINE q INTO out AS SELECT a, p, t FROM s WHERE a % 100 = 7
    """)
    run.mini.drain()
    found = [row for values in run.mini.checkpoint.kept.values() for row in values]
    assert sorted(row[0] for row in found) == list(range(7, 1000, 100))
    assert {row[1] for row in found} == {f"{url}/tables/one/t.parquet"} and all(row[2].year >= 2024 for row in found)
    run.mini.hub.sql("DROP PIPELINE q; DROP STREAM s")
    run.mini.checkpoint.kept.clear()
    run.mini.checkpoint.end = run.mini.checkpoint.logged = None
    run.mini.hub.sql(f"""
        CREATE STREAM s (a BIGINT, k STRING) WITH (source = 'files', format = 'csv', path = '{url}/csv/a.csv.gz',
          {run.server.options});
        CREATE PIPELINE q INTO out AS SELECT a, k FROM s
    """)
    run.mini.drain()
    assert [row for values in run.mini.checkpoint.kept.values() for row in values] == [(1, "x"), (2, "y")]


def test_an_object_that_is_replaced_after_it_was_listed_is_an_error_and_can_be_left_out(run: Run) -> None:
    run.put(0, 10)
    run.mini.hub.sql(f"{run.stream()}; {run.sink('l', 'jsonl')}; CREATE PIPELINE p INTO l AS SELECT a FROM s")
    run.mini.drain()
    run.put(10, 20)
    run.mini.checkpoint.crash = "logged"
    with pytest.raises(Crash):
        run.mini.drain()
    run.store.put("in/10.jsonl", b'{"a": 999}\n')
    run.mini.crash()
    run.mini.drain()
    assert "FILE_CHANGED" in str(run.mini.hub.streams["s"].status())
    run.mini.hub.sql(run.stream(", on_bad_file = 'skip'"))
    for _ in range(3):
        run.again()
    assert run.lines("l") == Counter(range(10))
    assert run.mini.hub.streams["s"].status().skipped_files == 1


def test_a_server_that_dies_in_the_middle_of_a_table_does_not_make_the_object_bad(run: Run) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(200_000)), "k": ["x"] * 200_000}), sink, row_group_size=50_000)
    run.store.put("in/t.parquet", sink.getvalue())
    run.mini.hub.sql(run.stream(", on_bad_file = 'skip'").replace("'json'", "'parquet'"))
    run.mini.hub.sql(f"{run.sink('l', 'jsonl')}")
    real, calls = ObjectStore.asking, itertools.count()

    def cut(store: ObjectStore, what: str) -> Any:
        if what == "read an object" and next(calls) == 9:
            run.server.relay.cut()
        return real(store, what)

    with mock.patch.object(ObjectStore, "asking", cut), pytest.raises(HeadraceError):
        run.mini.hub.sql("CREATE PIPELINE p INTO l AS SELECT a FROM s")
        run.mini.drain()
        raise run_error(run)
    run.server.relay.restore()
    run.again()
    assert run.lines("l") == Counter(range(200_000))
    assert run.mini.hub.streams["s"].status().skipped_files == 0


def run_error(run: Run) -> HeadraceError:
    status = str(run.mini.hub.streams["s"].status())
    assert "STORE_UNREACHABLE" in status
    return HeadraceError(status)


def test_credentials_are_in_one_file_and_in_nothing_that_is_shown(run: Run) -> None:
    run.put(0, 10)
    run.mini.hub.sql(f"{run.stream()}; {run.sink('l', 'jsonl')}; CREATE PIPELINE p INTO l AS SELECT a FROM s")
    run.mini.drain()
    assert run.lines("l") == Counter(range(10))
    secrets = (run.server.access_key, run.server.secret_key)
    assert holding(run.mini.directory, *secrets) == {"secrets.json"}
    questions = (
        "SHOW CREATE SINK l", "DESCRIBE SINK l", "SHOW CREATE STREAM s", "DESCRIBE STREAM s", "EXPLAIN PIPELINE p",
        "EXPLAIN JSON PIPELINE p", "SHOW STREAMS", "SHOW SINKS",
    )  # fmt: skip
    for question in questions:
        text = run.mini.hub.sql(question)[0].render()
        assert not any(secret in text for secret in secrets) and "secret:" not in text, question
    with pytest.raises(HeadraceError) as caught:
        run.mini.hub.sql(run.sink("other", "jsonl", ", wrong = '1'"))
    assert not any(secret in str(caught.value) for secret in secrets)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda text, server: text.replace(f"s3://{BUCKET}/", "s3://nowhere/"), "UNKNOWN_BUCKET"),
        (lambda text, server: text.replace(server.secret_key, "wrong"), "STORE_DENIED"),
        (lambda text, server: text.replace(server.access_key, "AKIAWRONG"), "STORE_DENIED"),
        (lambda text, server: text.replace(server.endpoint, "http://127.0.0.1:1"), "STORE_UNREACHABLE"),
    ],
)
def test_a_store_that_cannot_be_used_is_said_when_a_stream_or_sink_is_created(run: Run, change: Any, code: str) -> None:
    run.put(0, 1)
    for made in (run.stream(), run.sink("x", "parquet"), run.sink("y", "delta")):
        with pytest.raises(HeadraceError) as caught:
            run.mini.hub.sql(change(made, run.server))
        assert caught.value.code == code


def test_paths_and_options_that_do_not_fit_are_refused() -> None:
    parquet = SINKS["parquet"]
    key = {"access_key": "a", "secret_key": "b"}
    for options, error in (
        ({"path": "/data", **key}, BadOption),
        ({"path": "s3://key:secret@bucket/x"}, BadOption),
        ({"path": "s3:///x"}, BadOption),
        ({"path": "ftp://host/x"}, BadOption),
        ({"path": "gs://bucket/x", **key}, BadOption),
        ({"path": "abfs://account/x"}, BadOption),
        ({"path": "s3://bucket/x", "access_key": "a"}, MissingOption),
    ):
        with pytest.raises(error):
            parquet.check(options)
    with pytest.raises(BadOption):
        SINKS["http"].check({"url": "http://127.0.0.1:1", "staging": "s3://bucket/x"})


def test_a_state_directory_on_a_store_is_refused() -> None:
    with pytest.raises(UnwritablePath):
        StateDir.open(Path("s3://bucket/state"))
    assert not Path("s3:").exists()


def test_a_path_without_objects_and_a_growing_object_are_refused(run: Run) -> None:
    with pytest.raises(MissingFile):
        run.mini.hub.sql(run.stream())
    run.put(0, 1)
    with pytest.raises(BadOption):
        run.mini.hub.sql(run.stream(", tail = 'true'"))


def test_a_path_with_the_time_in_it_lists_only_the_prefixes_of_the_lookback(run: Run) -> None:
    today = datetime.now(UTC)
    old, now = (f"in/{day:%Y/%m/%d}" for day in (today - timedelta(days=90), today))
    run.store.put(f"{old}/a.jsonl", b'{"a": 1}\n')
    run.store.put(f"{now}/b.jsonl", b'{"a": 2}\n')
    run.mini.hub.sql(run.stream(", lookback = '24h'").replace("/in'", "/in/{yyyy}/{MM}/{dd}'"))
    run.mini.hub.sql(f"{run.sink('l', 'jsonl')}; CREATE PIPELINE p INTO l AS SELECT a FROM s")
    run.mini.drain()
    assert run.lines("l") == Counter([1, 2])
    asked: list[str] = []
    real = ObjectStore.objects

    def noted(store: ObjectStore, directory: str = "", recursive: bool = True) -> Any:
        asked.append(directory)
        return real(store, directory, recursive)

    run.store.put(f"{now}/c.jsonl", b'{"a": 3}\n')
    with mock.patch.object(ObjectStore, "objects", noted):
        run.mini.drain()
    assert run.lines("l") == Counter([1, 2, 3])
    days = [f"{today + timedelta(days=n):%Y/%m/%d}" for n in (-1, 0, 1)]
    assert set(asked) & set(days) and f"{old.removeprefix('in/')}" not in asked and "" not in asked


def test_rows_are_joined_into_few_objects(run: Run) -> None:
    run.put(0, 5)
    run.mini.hub.sql(f"{run.stream()}; {run.sink('l', 'jsonl', ', roll_age = ' + repr('1h'))}")
    run.mini.hub.sql("CREATE PIPELINE p INTO l AS SELECT a FROM s")
    for low in range(5, 25, 5):
        run.mini.drain()
        run.put(low, low + 5)
    run.mini.drain()
    assert run.files("l", ".jsonl") == []
    run.mini.hub.sql("DROP PIPELINE p")
    run.mini.drain()
    run.mini.hub.close(drain=False)
    assert len(run.files("l", ".jsonl")) == 1 and run.lines("l") == Counter(range(25))
    run.mini.open()
