"""The state directory has one owner, also across processes, crashes and an orphaned JVM."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headrace
from headrace.errors import BadOption, DiskFull, StateDamaged, StateInUse, StateTooNew, UnwritablePath
from headrace.state.state_dir import DROPPED, FORMAT, JVM_GRACE_SECONDS, StateDir, require_savepoint_name
from headrace.stream.runtime import StreamRuntime

HOLD = """
import sys
from pathlib import Path
from headrace.state.state_dir import StateDir
state = StateDir.open(Path(sys.argv[1]))
if len(sys.argv) > 2:
    state.record_owner(jvm=int(sys.argv[2]))
print("open", flush=True)
sys.stdin.read()
"""


def owner_process(path: Path, *args: str) -> subprocess.Popen[str]:
    """Another process that has opened `path`, and holds it until its stdin closes."""
    started = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "open\n"
    return started


def end(process: subprocess.Popen[str], *, crash: bool = False) -> None:
    if crash:
        process.kill()
    process.communicate(timeout=10)


def no_sleep(seconds: float) -> None:
    raise AssertionError("nothing to wait for")


def test_a_second_owner_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    first = StateDir.open(tmp_path / "new" / "state", no_sleep)
    with pytest.raises(StateInUse) as caught:
        StateDir.open(tmp_path / "new" / "state", no_sleep)
    assert isinstance(caught.value.params["pid"], int)
    first.close()
    first.close()
    StateDir.open(tmp_path / "new" / "state", no_sleep).close()


def test_an_owner_in_another_process_is_named(tmp_path: Path) -> None:
    process = owner_process(tmp_path)
    with pytest.raises(StateInUse) as caught:
        StateDir.open(tmp_path, no_sleep)
    assert caught.value.params["pid"] == process.pid
    assert caught.value.retry_helps
    end(process)
    StateDir.open(tmp_path, no_sleep).close()


def test_a_crash_leaves_the_directory_free(tmp_path: Path) -> None:
    end(owner_process(tmp_path), crash=True)
    assert json.loads((tmp_path / "lock").read_text())["pid"]
    StateDir.open(tmp_path, no_sleep).close()


def test_a_new_owner_waits_for_a_jvm_that_outlived_the_old_one(tmp_path: Path) -> None:
    jvm = subprocess.Popen(["sleep", "60"])
    try:
        end(owner_process(tmp_path, str(jvm.pid)), crash=True)
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                jvm.kill()
                jvm.wait()

        StateDir.open(tmp_path, sleep).close()
        assert len(waits) == 3
    finally:
        jvm.kill()
        jvm.wait()


def test_a_jvm_that_stays_is_named_after_the_grace_time(tmp_path: Path) -> None:
    jvm = subprocess.Popen(["sleep", "60"])
    try:
        end(owner_process(tmp_path, str(jvm.pid)), crash=True)
        waits: list[float] = []
        with pytest.raises(StateInUse) as caught:
            StateDir.open(tmp_path, waits.append)
        assert caught.value.params["pid"] == jvm.pid
        assert sum(waits) == pytest.approx(JVM_GRACE_SECONDS, abs=0.2)
    finally:
        jvm.kill()
        jvm.wait()
    StateDir.open(tmp_path, no_sleep).close()  # the failed attempt has not kept the lock


def test_a_reused_pid_is_not_taken_for_the_jvm(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        end(owner_process(tmp_path, str(other.pid)), crash=True)
        owner = json.loads((tmp_path / "lock").read_text())
        (tmp_path / "lock").write_text(json.dumps({**owner, "jvm_started": owner["jvm_started"] - 1}))
        StateDir.open(tmp_path, no_sleep).close()
    finally:
        other.kill()
        other.wait()


def test_a_zombie_is_gone(tmp_path: Path) -> None:
    jvm = subprocess.Popen(["sleep", "60"])
    end(owner_process(tmp_path, str(jvm.pid)), crash=True)
    jvm.kill()  # not waited for: the process table still has it
    StateDir.open(tmp_path, time.sleep).close()  # would raise StateInUse after the grace time
    jvm.wait()


@pytest.mark.parametrize("left", ["", "{", "[]", "null", '{"pid": 1}', '{"jvm": null}', "\x00\x00"])
def test_a_half_written_owner_is_ignored(tmp_path: Path, left: str) -> None:
    (tmp_path / "lock").write_text(left)
    StateDir.open(tmp_path, no_sleep).close()


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "VERSION").write_text(f"{FORMAT + 1}\n")
    for _ in range(2):
        with pytest.raises(StateTooNew) as caught:
            StateDir.open(tmp_path, no_sleep)
        assert caught.value.params["version"] == FORMAT + 1
    assert (tmp_path / "VERSION").read_text() == f"{FORMAT + 1}\n"


@pytest.mark.parametrize("text", ["", "one", "-1", "\xff", "\xb2"])
def test_a_version_that_is_no_number_is_damage(tmp_path: Path, text: str) -> None:
    (tmp_path / "VERSION").write_bytes(text.encode("latin-1"))
    with pytest.raises(StateDamaged):
        StateDir.open(tmp_path, no_sleep)


def test_the_format_is_written_once_and_kept(tmp_path: Path) -> None:
    for _ in range(2):
        StateDir.open(tmp_path, no_sleep).close()
        assert (tmp_path / "VERSION").read_text() == f"{FORMAT}\n"


def test_a_full_disk_is_a_coded_error_and_leaves_the_directory_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("headrace.state.state_dir.write_atomic", full)
        for _ in range(2):
            with pytest.raises(DiskFull):
                StateDir.open(tmp_path, no_sleep)
    StateDir.open(tmp_path, no_sleep).close()


def test_a_path_that_is_no_directory_is_a_coded_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UnwritablePath):
            StateDir.open(path, no_sleep)


@pytest.mark.parametrize("name", ["..", ".", "../x", "a/b", "/etc", ".gone-1", "%2e", "ü"])
def test_no_stream_s_name_leads_out_of_the_directory_or_to_another_stream_s(tmp_path: Path, name: str) -> None:
    state = StateDir.open(tmp_path, no_sleep)
    assert state.stream(name).resolve().parent == tmp_path / "streams"
    assert not state.stream(name).name.startswith(".")
    assert len({state.stream(n) for n in (name, "s", "..", "%2E")}) == len({name, "s", "..", "%2E"})
    assert state.stream("plain_1") == tmp_path / "streams" / "plain_1"
    state.close()


def test_sweeping_removes_what_dropped_streams_left_and_nothing_else(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path, no_sleep)
    state.sweep(["s"])  # nothing is there yet
    names = ("s", "a/b", "dropped", "unknown")
    for directory in (*map(state.stream, names), tmp_path / "streams" / ".gone-1"):
        (directory / "checkpoint").mkdir(parents=True)
    for name in ("s", "dropped"):  # the drop of `s` never got to the catalog
        (state.stream(name) / DROPPED).touch()
    for _ in range(2):
        state.sweep(["s", "a/b"])
        kept = sorted(p.name.rpartition("-")[0] or p.name for p in (tmp_path / "streams").iterdir())
        assert kept == [".unclaimed-unknown", "a%2Fb", "s"]
        assert not (state.stream("s") / DROPPED).exists()
    state.close()


def wide(root: Path) -> list[str]:
    """What others than the owner may use, but for what Spark writes below a checkpoint."""
    found = [root, *(p for p in root.rglob("*") if not any(q.name == "checkpoint" for q in p.parents))]
    return [str(p.relative_to(root)) for p in found if p.stat().st_mode & 0o077]


def test_a_new_state_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    with headrace.connect(tmp_path / "above" / "state") as hub:
        hub.sql("CREATE STREAM s (x INT) WITH (source = 'generator', format = 'json', rows = '5')")
        hub.savepoint("monday")
    assert wide(tmp_path / "above" / "state") == []
    assert (tmp_path / "above").stat().st_mode & 0o077  # not ours to close


def test_too_wide_modes_are_restricted_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "state"
    for name in ("streams/s/plans/00000001.json", "streams/s/checkpoint/offsets/0", "catalog.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    (tmp_path / "others").mkdir(mode=0o755)
    (root / "elsewhere").symlink_to(tmp_path / "others")
    StateDir.open(root, no_sleep).close()
    assert wide(root) == ["elsewhere"]  # what a link names is not below the directory
    assert [r.levelname for r in caplog.records] == ["WARNING"] and str(root) in caplog.text
    caplog.clear()
    StateDir.open(root, no_sleep).close()
    assert caplog.records == []


@pytest.mark.parametrize("name", ["../../x", "..", ".", "", "/etc", "a/b", ".hidden", "a b", "x" * 201, "a\nb", "-x"])
def test_a_savepoint_s_name_is_one_directory_s_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadOption):
        require_savepoint_name(name)
    with headrace.connect(tmp_path / "state") as hub, pytest.raises(BadOption):
        hub.savepoint(name)
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_a_lost_catalog_loses_no_stream_and_the_previous_one_can_replace_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    create = "CREATE STREAM {} (x INT) WITH (source = 'generator', format = 'json', rows = '5')"
    with headrace.connect(state) as hub:
        for name in ("one", "two"):
            hub.sql(create.format(name))
            (state / "streams" / name / "checkpoint").mkdir(parents=True)
    (state / "catalog.json").unlink()
    for _ in range(2):
        with pytest.raises(StateDamaged):
            headrace.connect(state)
        assert sorted(p.name for p in (state / "streams").iterdir()) == ["one", "two"]
    (state / "catalog.previous.json").rename(state / "catalog.json")
    with headrace.connect(state) as hub:
        assert list(hub.streams) == ["one"]
    kept = sorted(p.name.rpartition("-")[0] or p.name for p in (state / "streams").iterdir())
    assert kept == [".unclaimed-two", "one"]


def test_a_dropped_stream_is_gone_even_when_the_process_died_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    hub = headrace.connect(state)
    hub.sql("CREATE STREAM s (x INT) WITH (source = 'generator', format = 'json', rows = '5')")
    (state / "streams" / "s" / "checkpoint").mkdir(parents=True)
    monkeypatch.setattr(StreamRuntime, "forget", lambda runtime: None)  # the catalog was saved, and then it died
    hub.sql("DROP STREAM s")
    hub.close()
    headrace.connect(state).close()
    assert list((state / "streams").iterdir()) == []
