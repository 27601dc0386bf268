"""Settings of the user on their way to Spark, masters that do not answer, and failed starts."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    jvm: Any = spark_of_the_run.sparkContext._jvm
    heap = jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
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


def test_a_master_that_refuses_connections_is_reported_at_once_with_its_address() -> None:
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


def test_a_master_that_takes_connections_and_stays_silent_is_reported_before_a_jvm_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(SparkNotStarted) as refused:
            require_reachable(f"spark://127.0.0.1:{port}", limit=0.3)
        assert f"127.0.0.1:{port}: it takes connections, but does not answer" in refused.value.message


@contextmanager
def answering(answer: bytes, then_tls: bytes = b"") -> Iterator[int]:
    """A server that reads a question, answers with these bytes, and closes the connection: the port. A question in TLS
    gets the other answer."""

    def serve() -> None:
        while True:
            try:
                connection = server.accept()[0]
            except OSError:
                return
            with connection:
                asked = connection.recv(1000)
                connection.sendall(then_tls if asked[:1] == b"\x16" else answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


NOT_FOUND = struct.pack(">qB", 25, 8) + b"and more"  # how Spark's answer to the question begins


def test_one_of_several_masters_is_enough() -> None:
    with answering(NOT_FOUND) as port, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        require_reachable(f"spark://127.0.0.1:{free.getsockname()[1]},127.0.0.1:{port}")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR\r\n"], ids=repr)
def test_a_server_that_is_not_a_master_is_reported_at_once_without_a_jvm(answer: bytes) -> None:
    with answering(answer) as port, pytest.raises(SparkNotStarted) as refused:
        require_reachable(f"spark://127.0.0.1:{port}", limit=60)
    assert f"127.0.0.1:{port}: it takes connections, but does not answer as a Spark master" in refused.value.message


def test_a_master_that_wants_tls_is_left_to_spark() -> None:
    handshake_failure = bytes.fromhex("15030300020228")  # an alert
    with answering(b"", then_tls=handshake_failure) as port:
        require_reachable(f"spark://127.0.0.1:{port}", limit=60)


def test_the_command_line_asks_the_master_before_it_loads_the_planner(tmp_path: Path) -> None:
    """At load 20, loading took longer than the question. `-X importtime` lists what was loaded, in order."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        told = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "headrace.app.cli", "run", "missing.sql", "--master", master],
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert told.returncode == 2
    assert "[SPARK_NOT_STARTED]" in told.stderr and master in told.stderr
    assert not re.findall(r"\| +(pyspark|pyarrow|sqlglot|numba)$", told.stderr, re.MULTILINE)


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
