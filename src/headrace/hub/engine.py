"""The Spark session of a hub, and what SQL means on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.errors import SessionMismatch
from headrace.model.program import Meaning
from headrace.state.catalog import Catalog
from headrace.state.state_dir import StateDir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.session import Engine


def settle(spark: SparkSession | None, catalog: Catalog) -> tuple[Meaning, Engine | None]:
    """What SQL means here: the handed-in session's time zone, or UTC; and that session as an engine. Raises
    SessionMismatch when the stored plans mean something else."""
    meaning, engine = Meaning(), None
    if spark is not None:
        meaning = Meaning(time_zone=str(spark.conf.get("spark.sql.session.timeZone")))
        from headrace.spark.session import adopt

        engine = adopt(spark, meaning)
    for record in catalog.pipelines.values():
        stored = record.definition.program.meaning
        if stored != meaning:
            raise SessionMismatch(
                f"pipeline {record.definition.name} was planned for time zone {stored.time_zone}, "
                f"not {meaning.time_zone}",
                advice=f"Hand in a session with spark.sql.session.timeZone = {stored.time_zone}.",
                wanted=stored.time_zone,
                found=meaning.time_zone,
            )
    return meaning, engine


def launch(state: StateDir, master: str | None, verbose: bool, meaning: Meaning) -> Engine:
    """Start Spark, and note in the state directory whose it is. It is quiet, with a log there, unless `verbose`."""
    from headrace.spark.session import start

    if "HEADRACE_FAULT" in os.environ:  # a fault in a task must take this process with it
        os.environ.setdefault("HEADRACE_FAULT_PID", str(os.getpid()))
    log = None if verbose else state.path / "spark.log"
    engine = start(master, log, meaning)
    state.record_owner(engine.jvm_pid)
    return engine
