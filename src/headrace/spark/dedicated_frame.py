"""The streaming query of a pipeline on the dedicated host, as a data frame: feeds, watermarks, then the SQL as written.

    feed -> withWatermark -> observe -> drop the punctuation rows -> the user's SQL

Catalyst pushes filters below a watermark, unless they mention the event time. A filter that drops the punctuation rows,
or a filter of the user, would go below it, and the watermark would never see the rows. `observe` is a barrier that
nothing is pushed through.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from headrace.model.program import DedicatedQuery, FeedInput
from headrace.spark.feed_source import FEED_FORMAT, PUNCTUATION, FeedDataSource
from headrace.spark.jvm_plans import distinct_input, parse_query, query_over_all
from headrace.spark.query_checker import watermarked
from headrace.spark.session import QUERY_SETTINGS, Engine
from headrace.spark.staged_input import spark_schema


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """Where the feed of an input is, and the position with which a new checkpoint begins."""

    directory: Path
    start: int


def dedicated_session(engine: Engine) -> SparkSession:
    """A copy of the hub's session: it has the views and functions of the user, and settings of its own. Spark does not
    copy variables."""
    inner: Any = engine.spark._jsparkSession
    session = SparkSession(engine.spark.sparkContext, jsparkSession=inner.cloneSession())
    settings = {"spark.sql.shuffle.partitions": str(engine.cores), "spark.sql.streaming.pollingDelay": "50ms"}
    for key, value in (QUERY_SETTINGS | settings).items():
        session.conf.set(key, value)
    session.dataSource.register(FeedDataSource)
    return session


def dedicated_frame(
    session: SparkSession, query: DedicatedQuery, places: dict[str, FeedPlace], cores: int
) -> DataFrame:
    """The whole query. `places` has the feed of every stream. Raises AnalysisException."""
    for one in query.variables:
        name = one.name.replace("`", "``")
        session.sql(f"DECLARE OR REPLACE VARIABLE `{name}` {one.type} DEFAULT {one.value}")
    parsed = parse_query(session, query.sql)
    relations = {
        given.relation: _relation(session, query, given=given, place=places[given.stream], cores=cores)
        for given in query.inputs
    }
    frame = query_over_all(session, parsed, relations)
    if query.distinct:
        rows = distinct_input(frame)
        assert rows is not None, "the planner has seen that the query is a DISTINCT"
        frame = rows.dropDuplicates()
    return frame


def _relation(
    session: SparkSession, query: DedicatedQuery, given: FeedInput, place: FeedPlace, cores: int
) -> DataFrame:
    columns = spark_schema(given.staged)
    schema = StructType([*columns.fields, StructField(PUNCTUATION, BooleanType())])
    options = {
        "stream": given.stream,
        "directory": str(place.directory),
        "start": str(place.start),
        "event_time": given.event_time or "",
        "delay_us": str(given.delay_us),
        "closes": str(query.closes).lower(),
        "parallelism": str(cores),
        "schema": base64.b64encode(given.staged.arrow.serialize()).decode(),
    }
    rows = session.readStream.format(FEED_FORMAT).schema(schema).options(**options).load()
    if given.event_time is not None:
        timed = watermarked(rows, given.event_time, given.delay_us)
        observed: Any = timed.observe(f"{given.relation}-rows", F.count(F.lit(1)).alias("rows"))
        rows = observed.filter(~F.col(PUNCTUATION))
    return rows.drop(PUNCTUATION)
