"""Python processes that are forked from the worker server behave as if they were started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.spark import python
from headrace.spark.python import SERVER, PreloadedPython, preloaded_python, worker_python

PROGRAM = """
import gc, json, os, sys, time
if sys.argv[1:2] == ["sleep"]:
    print(os.getpid(), flush=True)
    time.sleep(60)
facts = {"arguments": sys.argv[1:], "loaded": "duckdb" in sys.modules,
         "frozen": gc.get_freeze_count() > 50_000, "name": os.environ.get("NAME"),
         "hash": hash("a"), "directory": os.getcwd(), "through": sys.stdout.write_through,
         "files": [n for n in range(3, 64) if os.path.lexists(f"/proc/self/fd/{n}")],
         "threads": len(os.listdir("/proc/self/task")), "input": sys.stdin.read(), "pid": os.getpid()}
print(json.dumps(facts))
print("to standard error", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PreloadedPython]:
    found = preloaded_python("local[2]")
    if found is None:
        pytest.skip("processes are forked on Linux only")
    with found.in_environment():
        yield found
    found.stop()
    assert not os.path.exists(found.path)


def command(directory: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    (directory / "program_of_test.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(directory), "NAME": "a name"}
    return [worker_python(), "-m", "program_of_test", *arguments], env


def test_a_forked_process_has_its_own_command_line_files_and_environment(
    server: PreloadedPython, tmp_path: Path
) -> None:
    line, env = command(tmp_path, "one", "two words")
    forked = subprocess.run(line, env=env, cwd=tmp_path, input="given", capture_output=True, text=True, check=False)
    started = subprocess.run(
        line, env={**env, SERVER: ""}, cwd=tmp_path, input="given", capture_output=True, text=True, check=False
    )
    ours, theirs = json.loads(forked.stdout), json.loads(started.stdout)
    assert ours.pop("loaded") and not theirs.pop("loaded")
    assert ours.pop("frozen") and not theirs.pop("frozen")
    assert ours.pop("pid") != theirs.pop("pid")
    assert ours == theirs and ours["input"] == "given"
    assert forked.returncode == started.returncode == 3
    assert "to standard error" in forked.stderr


def test_a_process_has_no_connection_of_another_and_numpy_one_thread(server: PreloadedPython, tmp_path: Path) -> None:
    line, env = command(tmp_path, "sleep")
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline()
        line, env = command(tmp_path)
        found = subprocess.run(line, env=env, input="", capture_output=True, text=True, check=False)
        other.kill()
    facts = json.loads(found.stdout)
    assert facts["loaded"] and facts["files"] == [] and facts["threads"] == 1 and facts["through"]


def test_a_process_that_is_to_have_more_threads_is_not_forked(server: PreloadedPython, tmp_path: Path) -> None:
    line, env = command(tmp_path)
    env["OMP_NUM_THREADS"] = "4"
    found = subprocess.run(line, env=env, input="", capture_output=True, text=True, check=False)
    assert '"loaded": false' in found.stdout


def test_a_server_whose_owner_is_killed_ends_and_leaves_nothing(tmp_path: Path) -> None:
    program = "import time, headrace.spark.python as p; print(p.PreloadedPython().path, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        path = owner.stdout.readline().strip()
        assert os.path.exists(path)
        owner.kill()
    limit = time.monotonic() + 60  # it loads everything first
    while os.path.exists(os.path.dirname(path)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not os.path.exists(os.path.dirname(path))


def test_a_server_that_fails_leaves_the_directory_of_sparks_sockets_to_its_owner() -> None:
    own = PreloadedPython()
    assert os.getpgid(own._process.pid) != os.getpgid(0), "Ctrl-C in a terminal does not reach it"
    own._process.send_signal(signal.SIGINT)  # it loads packages, and does not ignore it yet
    assert own._process.wait(30) != 0
    assert os.path.isdir(own.settings()["spark.python.unix.domain.socket.dir"])
    own.stop()
    assert not os.path.exists(os.path.dirname(own.path))


@pytest.mark.spark
def test_an_embedded_session_talks_to_its_python_over_sockets_that_only_their_owner_can_open(
    spark_of_the_run: SparkSession,
) -> None:
    kept = spark_of_the_run.sparkContext.getConf()
    directory = Path(kept.get("spark.python.unix.domain.socket.dir") or "/missing")
    assert kept.get("spark.python.unix.domain.socket.enabled") == "true"
    assert directory.stat().st_mode & 0o777 == 0o700

    def sockets(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [name for name in os.listdir(directory) if name.endswith(".sock")]
        yield pa.RecordBatch.from_pydict({"name": pa.array(names, pa.string())})

    assert spark_of_the_run.range(1).mapInArrow(sockets, "name string").count() > 0


def test_sockets_are_not_used_where_their_path_would_be_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / ("d" * 60)
    directory.mkdir()
    own = PreloadedPython.__new__(PreloadedPython)
    monkeypatch.setattr(own, "_directory", directory, raising=False)
    assert own.settings() == {}
    monkeypatch.setattr(own, "_directory", Path("/tmp/short"))
    assert own.settings()["spark.python.unix.domain.socket.dir"] == "/tmp/short"


def test_the_server_is_named_only_to_the_jvm_and_stopping_ends_processes_that_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "STOP_SECONDS", 0.5)
    own = PreloadedPython()
    assert os.environ.get(SERVER) != own.path
    with own.in_environment():
        line, env = command(tmp_path, "sleep")
    assert os.environ.get(SERVER) != own.path and env[SERVER] == own.path
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        own.stop()
        assert client.wait(10) != 0
    assert not os.path.exists(f"/proc/{pid}") and not os.path.exists(own.path)


def test_a_process_ends_with_the_client_that_asked_for_it(server: PreloadedPython, tmp_path: Path) -> None:
    line, env = command(tmp_path, "sleep")
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        assert pid != client.pid
        assert b"-m\0program_of_test\0sleep\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"program_of_test" not in Path(f"/proc/{client.pid}/cmdline").read_bytes()
        client.send_signal(signal.SIGTERM)
    limit = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < limit:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}")


def test_without_a_server_python_is_started(tmp_path: Path) -> None:
    gone = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(gone))  # nobody listens there any more
    line, env = command(tmp_path)
    found = subprocess.run(line, env={**env, SERVER: str(gone)}, input="", capture_output=True, text=True, check=False)
    assert found.returncode == 3 and '"loaded": false' in found.stdout


def test_a_server_that_dies_while_it_loads_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        line, env = command(tmp_path)
        env |= {SERVER: str(tmp_path / "s")}
        with subprocess.Popen(line, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as client:
            listener.accept()[0].close()
            assert client.stdout is not None and '"loaded": false' in client.stdout.read()


def test_other_command_lines_are_not_forked(server: PreloadedPython) -> None:
    program = "import sys; print('duckdb' in sys.modules, sys.argv[1:])"
    found = subprocess.run([worker_python(), "-c", program, "a b"], capture_output=True, text=True, check=True)
    assert found.stdout == "False ['a b']\n"


def test_sparks_workers_do_not_walk_loaded_modules_when_they_collect_garbage() -> None:
    """Spark's worker collects garbage after every task. The daemon must freeze what it loaded before it forks one."""
    program = (
        "import gc, runpy\n"
        "run = runpy.run_module\n"
        "runpy.run_module = lambda name, **_: print(name, gc.get_freeze_count())\n"
        "run('headrace.spark.daemon', run_name='__main__')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    name, frozen = ran.stdout.split()
    assert name == "pyspark.daemon" and int(frozen) > 50_000
