"""Settings of the user on their way to Spark, masters that do not answer, and failed starts."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.base.logs import keep_previous
from headrace.errors import BadOption, SparkNotStarted
from headrace.hub.launcher import SparkLauncher
from headrace.model.program import Meaning
from headrace.model.spark_options import SparkOptions, read_conf
from headrace.spark.reachable import _QUESTION, registration_limited, require_reachable
from headrace.spark.session import _heap_mb, _last_words, _machine_memory, _not_started, _session_settings


def test_settings_packages_and_the_page_reach_the_session(tmp_path: Path) -> None:
    options = SparkOptions(
        conf={"spark.executor.memory": "4g", "spark.jars.packages": "a:b:1", "spark.driver.extraJavaOptions": "-Dx=1"},
        packages=("c:d:2",),
        ui=True,
    )
    found = _session_settings("local[1]", tmp_path / "spark.log", Meaning(), ["-XX:Fast"], options.settings())
    assert found["spark.executor.memory"] == "4g"
    assert found["spark.jars.packages"] == "a:b:1,c:d:2"
    assert found["spark.ui.enabled"] == "true"
    java = found["spark.driver.extraJavaOptions"].split()
    assert java[0] == "-XX:Fast"
    assert java[-1] == "-Dx=1"
    assert f"-Dheadrace.spark.log={tmp_path / 'spark.log'}" in java
    assert _session_settings("local[1]", None, Meaning(), [], {})["spark.ui.enabled"] == "false"


def test_the_heap_follows_the_memory_of_the_machine(spark_of_the_run: SparkSession) -> None:
    assert int(os.environ["SPARK_DRIVER_MEMORY"].removesuffix("m")) == _heap_mb(_machine_memory())
    heap = spark_of_the_run.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
    assert heap == pytest.approx(_heap_mb(_machine_memory()), rel=0.1)


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.master": "x"},
        {"spark.sql.ansi.enabled": "false"},
        {"executor.memory": "1g"},
        {"spark.sql.session.timeZone": "UTC"},
    ],
    ids=str,
)
def test_settings_that_would_break_the_hub_are_refused(conf: dict[str, str]) -> None:
    with pytest.raises(BadOption):
        SparkOptions(conf=conf)


@pytest.mark.parametrize("text", ["spark.x", "=4", ""])
def test_a_setting_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(BadOption):
        read_conf([text])


def test_a_session_of_the_user_takes_no_settings() -> None:
    with pytest.raises(BadOption):
        SparkLauncher(object(), SparkOptions(ui=True))  # type: ignore[arg-type]


def test_a_master_that_refuses_connections_is_told_at_once_with_its_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(SparkNotStarted) as refused:
        require_reachable(f"spark://127.0.0.1:{port},127.0.0.1:{port}")
    assert time.monotonic() - began < 20
    assert str(refused.value).count(f"127.0.0.1:{port}: ") == 2
    require_reachable("local[*]")
    require_reachable("yarn")


def test_a_master_that_takes_connections_and_stays_silent_is_told_before_a_jvm_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(SparkNotStarted) as refused:
            require_reachable(f"spark://127.0.0.1:{port}", limit=0.3)
        assert f"127.0.0.1:{port}: it takes connections, but does not answer" in refused.value.message


def test_one_of_several_masters_is_enough() -> None:
    """The one that is there closes the connection, as a master with encryption does."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closing = threading.Thread(target=lambda: server.accept()[0].close())
        closing.start()
        require_reachable(f"spark://127.0.0.1:{free.getsockname()[1]},127.0.0.1:{server.getsockname()[1]}")
        closing.join()


@pytest.mark.spark
def test_spark_itself_answers_the_question_that_is_asked_of_a_master(spark_of_the_run: SparkSession) -> None:
    """The driver has the same kind of server as a master."""
    port = int(str(spark_of_the_run.conf.get("spark.driver.port")))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(_QUESTION)
        answer = connection.recv(1000)
    assert answer[8] == 8 and b"was not found" in answer  # a StreamFailure
    require_reachable(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("said", "given_up"),
    [("Connecting to master", True), ("Connecting to master\nConnected to Spark cluster", False), ("", False)],
)
def test_a_master_that_does_not_register_the_application_is_given_up(tmp_path: Path, said: str, given_up: bool) -> None:
    (tmp_path / "spark.log").write_text(said)
    ended = threading.Event()
    with registration_limited("spark://a:1", tmp_path / "spark.log", ended.set, limit=0.1) as watch:
        assert ended.wait(10 if given_up else 1.0) == given_up
    assert watch.timed_out == given_up


def test_the_reason_of_a_failed_start_is_one_line(tmp_path: Path) -> None:
    py4j = (
        "An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n"
        ": org.apache.spark.SparkException: Master must either be yarn or start with spark, k8s, or local\n"
        "\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3000)\n"
    )
    assert "Master must either be yarn" in _not_started("x", Exception(py4j), None).message
    (tmp_path / "spark.err").write_text(
        "WARNING: Using incubator modules\nInvalid maximum heap size: -Xmxmuch\n"
        "Error: Could not create the Java Virtual Machine.\nError: A fatal exception has occurred. Program will exit.\n"
    )
    found = _not_started(
        "local", Exception("[JAVA_GATEWAY_EXITED] Java gateway process exited"), tmp_path / "spark.log"
    )
    assert found.message.endswith("Invalid maximum heap size: -Xmxmuch")
    (tmp_path / "spark.err").write_text(
        'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]\n\tat x.Y\n'
    )
    assert _last_words(tmp_path / "spark.err").endswith("[unresolved dependency: a#b;1: not found]")


def test_logs_of_the_runs_before_are_kept_up_to_a_number(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    for number in range(5):
        log.write_text(str(number))
        keep_previous(log, 3)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "spark.log.1": "4",
        "spark.log.2": "3",
        "spark.log.3": "2",
    }
