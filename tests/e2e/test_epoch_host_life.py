"""The life of a pipeline on the epoch host: its failures are its own, static tables may change, large epochs use files,
and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.spark.jvm_plans import query_over
from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.hub.hub import Hub

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Feed:
    """A stream of (id, k) on a hub of its own. Every file is an epoch."""

    def __init__(self, base: Path, hub: Hub, session: SparkSession) -> None:
        self.base, self.hub, self.session, self.rows = base, hub, session, 0

    def give(self, count: int = 5) -> None:
        """Give `count` rows, and wait until they are in the sinks."""
        ids = range(self.rows, self.rows + count)
        self.rows += count
        put(self.base / "in" / f"{self.rows:06}.json", [f'{{"id": {i}, "k": "k{i % 3}"}}' for i in ids])
        until(lambda: self.hub.streams["s"].status().rows >= self.rows, "the rows are read")
        self.hub.streams["s"].sync()

    def found(self, name: str) -> list[tuple[object, ...]]:
        return sorted(rows_of(self.hub.pipelines[name].results()))

    def failure(self, name: str) -> str:
        status = self.hub.pipelines[name].status
        return str(until(lambda: status().state == "failed" and status().error, f"{name} fails"))


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Feed]:
    """A feed whose epochs may take ten minutes, or what a test asks for."""
    limit = getattr(request, "param", "600s")
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.createDataFrame([("k0", 10), ("k1", 11)], "k STRING, w INT").createOrReplaceTempView("dim")
    (tmp_path / "in").mkdir()
    with headrace.connect(tmp_path / "the [state] of {a} *hub*", spark=session) as hub:
        hub.sql(
            "CREATE STREAM s (id BIGINT, k STRING) WITH (source = 'files', format = 'json', "
            f"max_epoch_time = '{limit}', path = '{tmp_path / 'in'}');"
            "CREATE SINK m WITH (type = 'memory');"
            "CREATE PIPELINE neighbour INTO m AS SELECT id FROM s;"
            "CREATE PIPELINE by_spark INTO m WITH (host = 'epoch') AS SELECT id, upper(k) AS k FROM s"
        )
        yield Feed(tmp_path, hub, session)


@pytest.mark.parametrize("feed", ["60s"], indirect=True)
def test_a_function_that_raises_or_hangs_fails_its_pipeline_and_no_other(feed: Feed) -> None:
    def raises(i: int) -> int:
        if i == 7:
            raise ValueError(f"no {i}")
        return i

    def hangs(i: int) -> int:
        if i == 12:
            time.sleep(300)
        return i

    feed.session.udf.register("raises", raises, "long")
    feed.session.udf.register("hangs", hangs, "long")
    feed.hub.sql(
        "CREATE PIPELINE bad INTO m AS SELECT raises(id) AS id FROM s;"
        "CREATE PIPELINE slow INTO m AS SELECT hangs(id) AS id FROM s;"
        "CREATE PIPELINE divides INTO m WITH (host = 'epoch') AS SELECT 1 div (id - 8) AS d FROM s"
    )
    feed.give()
    assert feed.found("bad") == feed.found("slow") == [(i,) for i in range(5)]
    feed.give()
    said = feed.failure("bad")
    assert said.startswith("[EVALUATION_FAILED]") and "no 7" in said and "raises" in said
    assert "on the row where id = 7" in said, "the error names the row"
    said = feed.failure("divides")
    assert said.startswith("[EVALUATION_FAILED]") and "DIVIDE_BY_ZERO" in said and "id = 8" in said
    assert feed.found("bad") == [(i,) for i in range(5)], "nothing of the epoch is in its sinks"
    feed.give()
    assert feed.failure("slow").startswith("[QUERY_TIMEOUT]"), "after half of max_epoch_time"
    feed.give()
    assert feed.found("neighbour") == [(i,) for i in range(20)]
    assert feed.found("by_spark") == [(i, f"K{i % 3}") for i in range(20)]
    assert feed.hub.pipelines["by_spark"].status().rows_out == 20


def test_a_static_table_may_change_until_it_is_gone_or_has_other_columns(feed: Feed) -> None:
    query = "SELECT s.id, d.w FROM s JOIN dim d ON s.k = d.k"
    feed.hub.sql(
        f"CREATE PIPELINE each INTO m AS {query};"
        f"CREATE PIPELINE kept INTO m WITH (static_refresh = '1h') AS {query};"
        "CREATE PIPELINE kept_by_name INTO m WITH (static_refresh = '1h') AS "
        "SELECT s.id, dim.w FROM s, dim WHERE s.k = dim.k"
    )
    feed.give(3)
    assert feed.found("each") == feed.found("kept") == feed.found("kept_by_name") == [(0, 10), (1, 11)]
    feed.session.createDataFrame([("k2", 22)], "k STRING, w INT").createOrReplaceTempView("dim")
    feed.give(3)
    assert feed.found("each") == [(0, 10), (1, 11), (5, 22)]
    assert feed.found("kept") == feed.found("kept_by_name") == [(0, 10), (1, 11), (3, 10), (4, 11)]
    feed.session.createDataFrame([("k2", "x")], "k STRING, w STRING").createOrReplaceTempView("dim")
    feed.give(3)
    assert feed.failure("each").startswith("[OUTPUT_CHANGED]")
    feed.hub.sql(f"CREATE OR REPLACE PIPELINE each INTO m AS {query}")
    feed.session.catalog.dropTempView("dim")
    feed.give(3)
    assert feed.failure("each").startswith("[SPARK_REFUSED]")
    assert feed.hub.pipelines["kept"].status().state == "running", "it has a copy of the table"
    with pytest.raises(HeadraceError) as caught:
        feed.hub.sql("CREATE PIPELINE no INTO m WITH (static_refresh = '1h') AS SELECT id FROM s")
    assert caught.value.code == "BAD_OPTION"


def test_a_static_table_that_grows_too_large_for_a_broadcast_fails_only_the_query_that_asks_for_one(feed: Feed) -> None:
    feed.session.conf.set("spark.sql.maxBroadcastTableSize", "4mb")
    feed.hub.sql(
        "CREATE PIPELINE hinted INTO m AS SELECT /*+ BROADCAST(d) */ s.id, d.w FROM s JOIN dim d ON s.k = d.k;"
        "CREATE PIPELINE merged INTO m AS SELECT /*+ MERGE(d) */ s.id, d.w FROM s JOIN dim d ON s.k = d.k"
    )
    feed.give(3)
    assert feed.found("hinted") == feed.found("merged") == [(0, 10), (1, 11)]
    grown = feed.session.range(300_000).selectExpr("concat('k', id) AS k", "CAST(id AS INT) AS w")
    grown.createOrReplaceTempView("dim")
    feed.give(3)
    said = feed.failure("hinted")
    assert said.startswith("[TABLE_TOO_LARGE]") and "BROADCAST hint" in said
    assert feed.found("merged") == [(0, 10), (1, 11), (3, 0), (4, 1), (5, 2)]


def test_a_function_that_uses_up_the_memory_kills_its_worker_and_fails_only_its_pipeline(feed: Feed) -> None:
    def leaks(i: int) -> int:
        if i == 4:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
        return i

    feed.session.udf.register("leaks", leaks, "long")
    feed.hub.sql("CREATE PIPELINE leaky INTO m AS SELECT leaks(id) AS id FROM s")
    feed.give(3)
    assert feed.found("leaky") == [(0,), (1,), (2,)]
    feed.give(3)
    assert feed.failure("leaky").startswith("[WORKER_DIED]")
    feed.give(3)
    assert feed.found("neighbour") == [(i,) for i in range(9)]


def test_a_worker_that_is_killed_once_fails_no_pipeline(feed: Feed, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def dies_once(i: int) -> int:
        if i == 4 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    feed.session.udf.register("dies_once", dies_once, "long")
    feed.hub.sql("CREATE PIPELINE unlucky INTO m AS SELECT dies_once(id) AS id FROM s")
    feed.give(6)
    assert killed.exists()
    assert feed.found("unlucky") == [(i,) for i in range(6)]
    assert feed.hub.pipelines["unlucky"].status().state == "running"


def test_a_value_that_does_not_fit_into_sparks_memory_fails_only_its_pipeline(feed: Feed) -> None:
    """In a large epoch, whose queries run in tasks. Spark would end its JVM, and all streams with it."""
    feed.hub.sql(
        "CREATE PIPELINE huge INTO m WITH (host = 'epoch') AS SELECT length(repeat(k, 1000000000)) AS n FROM s"
    )
    feed.give(90_000)
    assert feed.failure("huge").startswith("[OUT_OF_MEMORY]")
    feed.give(1)
    assert len(feed.found("neighbour")) == len(feed.found("by_spark")) == 90_001
    assert feed.hub.streams["s"].status().problem == ""


SCALA = """
class Twice extends org.apache.spark.sql.api.java.UDF1[java.lang.Long, java.lang.Long] {
  override def call(x: java.lang.Long): java.lang.Long = if (x == null) null else x * 2
}
"""


def test_a_scala_function_of_the_session(feed: Feed) -> None:
    """Compiled with the compiler in Spark's distribution."""
    from pyspark.sql.types import LongType

    jars = Path(pyspark.__file__).parent / "jars"
    (feed.base / "Twice.scala").write_text(SCALA)
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    compiler = [str(java), "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", "scala.tools.nsc.Main", "-usejavacp"]
    subprocess.run([*compiler, "-d", "twice.jar", "Twice.scala"], cwd=feed.base, check=True)
    feed.session.sql(f"ADD JAR '{feed.base / 'twice.jar'}'")
    feed.session.udf.registerJavaFunction("twice", "Twice", LongType())
    feed.hub.sql("CREATE PIPELINE doubled INTO m AS SELECT id, twice(id) AS t FROM s WHERE twice(id) > 2")
    feed.give(4)
    assert feed.found("doubled") == [(2, 4), (3, 6)]


def test_pipelines_join_stop_and_start_again_as_on_the_shared_host(feed: Feed) -> None:
    feed.give(2)
    feed.hub.sql("CREATE PIPELINE late INTO m WITH (host = 'epoch') AS SELECT id, k FROM s WHERE id <> 3")
    feed.give(2)
    assert feed.found("late") == [(2, "k2")], "it has never seen an epoch without the column k"
    feed.hub.pipelines["late"].stop()
    feed.give(2)
    feed.hub.pipelines["late"].start()
    feed.give(2)
    assert feed.found("late") == [(2, "k2"), (6, "k0"), (7, "k1")]
    assert feed.hub.pipelines["late"].status().missed_rows == 2
    feed.hub.pipelines["late"].stop(now=True)
    assert feed.hub.pipelines["late"].status().state == "stopped"


def test_a_large_epoch_goes_through_files_and_leaves_none(feed: Feed) -> None:
    out = feed.base / "out"
    feed.hub.sql(
        f"CREATE SINK files WITH (type = 'parquet', path = '{out}');"
        "CREATE PIPELINE large INTO files WITH (host = 'epoch') AS "
        "SELECT id, concat(repeat(k, 60), id) AS text FROM s WHERE id % 2 = 0;"
        "CREATE PIPELINE wide INTO files WITH (host = 'epoch') AS SELECT id, repeat(k, 3) AS text FROM s"
    )
    feed.give(300_000)
    table = pq.read_table(out)
    assert table.num_rows == 450_000
    assert pc.sum(table.column("id")).as_py() == sum(range(300_000)) + sum(range(0, 300_000, 2))
    assert not list(feed.hub.directory.rglob("staged/*")), "the rows of an epoch are deleted with it"
    feed.hub.sql(
        "DROP PIPELINE large; DROP PIPELINE wide; DROP PIPELINE neighbour; DROP PIPELINE by_spark; DROP STREAM s"
    )
    assert not list(feed.hub.directory.rglob("*staged*"))
    assert not [p for p in out.rglob("*") if p.is_file() and not p.name.startswith("part-")]


def test_a_query_is_analyzed_once_unless_something_that_it_names_may_change(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = {
        "alone": "SELECT 'alone' AS tag, id, soundex(k) AS v FROM s",
        "again": "WITH s AS (SELECT id, k FROM s WHERE id <> 1) SELECT 'again' AS tag, id, soundex(k) AS v FROM s",
        "called": "SELECT 'called' AS tag, id, own(id) AS v FROM s",
        "joined": "SELECT 'joined' AS tag, s.id, d.w AS v FROM s JOIN dim d ON s.k = d.k",
        "varied": "SELECT 'varied' AS tag, id, id + least AS v FROM s",
        "inside": "SELECT 'inside' AS tag, id, id + (SELECT max(w) FROM dim) AS v FROM s",
    }
    analyzed: Counter[str] = Counter()

    def counted(spark: SparkSession, parsed: Any, relation: str, rows: DataFrame) -> DataFrame:
        text = str(parsed.toString())
        analyzed.update(name for name in queries if f"{name} AS tag" in text)
        return query_over(spark, parsed, relation, rows)

    monkeypatch.setattr("headrace.spark.epoch_queries.query_over", counted)
    feed.session.udf.register("own", lambda i: i + 1, "long")
    feed.session.sql("DECLARE VARIABLE least BIGINT DEFAULT 10")
    made = (f"CREATE PIPELINE {name} INTO m WITH (host = 'epoch') AS {text}" for name, text in queries.items())
    feed.hub.sql(";".join(made))
    feed.give(2)
    assert analyzed == dict.fromkeys(queries, 1)
    feed.session.udf.register("own", lambda i: i + 100, "long")
    feed.session.sql("SET VAR least = 20")
    feed.session.createDataFrame([("k2", 30)], "k STRING, w INT").createOrReplaceTempView("dim")
    feed.give(1)
    assert analyzed == dict.fromkeys(queries, 2) | {"alone": 1, "again": 1}
    found = {name: [row[1:] for row in feed.found(name)] for name in queries}
    assert found["alone"] == [(0, "K000"), (1, "K000"), (2, "K000")]
    assert found["again"] == [(0, "K000"), (2, "K000")]
    assert found["called"] == [(0, 1), (1, 2), (2, 102)]
    assert found["joined"] == [(0, 10), (1, 11), (2, 30)]
    assert found["varied"] == [(0, 10), (1, 11), (2, 22)]
    assert found["inside"] == [(0, 11), (1, 12), (2, 32)]
    feed.hub.sql(";".join(f"DROP PIPELINE {name}" for name in queries if name != "alone"))
    feed.give(90_000)  # rows in files
    assert analyzed["alone"] == 1
    assert [row[1] for row in feed.found("alone")] == list(range(90_003))
