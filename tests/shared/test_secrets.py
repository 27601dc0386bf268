"""Tokens are stored apart, for the owner alone, and only the gateway gets them."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.app.check import check_script
from headrace.errors import AlreadyExists, StateDamaged
from headrace.ingress.gateway_service import GatewayService
from headrace.ingress.settings import HttpSettings
from headrace.model.definitions import StreamDef
from headrace.service.offline import OfflineHub
from headrace.state.catalog import CatalogFile
from headrace.state.restore import restore
from headrace.state.secrets import Vault, read_vault
from tests.shared.mini import Mini

TOKEN = "s3cret-Träger'"
WRITTEN = TOKEN.replace("'", "''")
SCRIPT = """CREATE STREAM s (id BIGINT) WITH (source = 'http', format = 'json', listen = '127.0.0.1:0', Token = '{}');
    CREATE SINK out WITH (type = 'kept'); CREATE PIPELINE p INTO out AS SELECT id FROM s"""


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    mini = Mini(tmp_path / "state", monkeypatch)
    yield mini
    mini.hub.close()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens that the gateway is given, without a process."""
    tokens: list[str] = []

    def opened(service: GatewayService, stream: StreamDef, directory: Path, settings: HttpSettings) -> list[str]:
        tokens.append(settings.token)
        return []

    monkeypatch.setattr(GatewayService, "open", opened)
    return tokens


def holding(root: Path, *texts: str) -> set[str]:
    """The files below a directory that hold one of the texts, in any spelling of JSON."""
    wanted = [form.encode() for text in texts for form in (text, json.dumps(text)[1:-1], text.replace("'", "''"))]
    files = [p for p in root.rglob("*") if p.is_file()]
    return {str(p.relative_to(root)) for p in files if any(form in p.read_bytes() for form in wanted)}


def post(mini: Mini, token: str) -> int:
    place = mini.hub.streams["s"].addresses()[0].split("://")[1].split("/")[0]
    client = http.client.HTTPConnection(place, timeout=10)
    client.request("POST", "/ingest/s", b'{"id":1}\n', {"Authorization": f"Bearer {token}".encode()})
    status = client.getresponse().status
    client.close()
    return status


def test_a_token_is_in_one_file_and_in_nothing_that_is_shown_or_sent_to_tasks(mini: Mini) -> None:
    mini.hub.sql(SCRIPT.format(WRITTEN))
    state = mini.directory
    assert holding(state, TOKEN) == {"secrets.json"}
    assert (state / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert post(mini, TOKEN) == 204 and post(mini, "secret:") == 401
    stored = CatalogFile(state).read().streams["s"].options["token"]
    assert post(mini, stored) == 401  # its name opens nothing
    assert mini.query is not None
    start = mini.query.checkpoint.end
    assert start is not None
    parts: Any = mini.query.planner.partitions(start, {**start, "now": start["now"] + 1})
    assert parts and all(TOKEN not in repr(part) and json.dumps(TOKEN)[1:-1] not in repr(part) for part in parts)
    for question in ("SHOW CREATE STREAM s", "DESCRIBE STREAM s", "EXPLAIN PIPELINE p", "EXPLAIN JSON PIPELINE p"):
        shown = mini.hub.sql(question)[0].render()
        assert "s3cret" not in shown and "secret:" not in shown
    mini.hub.sql("STOP PIPELINE p")  # the miniature cannot be cut while it runs
    taken = mini.hub.savepoint("monday")
    assert holding(taken, TOKEN) == {"secrets.json"}
    assert not [p for p in taken.rglob("*") if p.stat().st_mode & 0o077]


def assert_as_declared(mini: Mini) -> None:
    """Declaring the stream again, with the same token, changes nothing."""
    declared = mini.hub.catalog.streams
    mini.hub.sql(SCRIPT.format(WRITTEN).split(";")[0])
    assert mini.hub.catalog.streams == declared


def test_the_same_script_again_is_as_declared_and_another_token_is_not(mini: Mini, given: list[str]) -> None:
    mini.hub.sql(SCRIPT.format(WRITTEN))
    mini.crash()
    assert_as_declared(mini)
    check_script(SCRIPT.format(WRITTEN).replace("'kept'", "'memory'").split(";")[0], mini.directory)
    with pytest.raises(AlreadyExists) as caught:
        mini.hub.sql(SCRIPT.format("another-one").split(";")[0])
    assert "another-one" not in caught.value.render() and "listen" in caught.value.render()
    assert given.pop() == TOKEN
    mini.hub.sql("DROP PIPELINE p; DROP STREAM s; CREATE SINK other WITH (type = 'memory')")
    assert holding(mini.directory, TOKEN) == set()


def test_an_older_directory_and_its_savepoints_lose_their_clear_tokens_when_it_is_opened(
    mini: Mini, tmp_path: Path, given: list[str]
) -> None:
    mini.hub.sql(SCRIPT.format(WRITTEN))
    mini.hub.sql("STOP PIPELINE p")
    taken = mini.hub.savepoint("monday")
    mini.hub.close(drain=False)
    for root in (mini.directory, taken):
        reveal(root)
    assert len(holding(mini.directory, TOKEN)) >= 4
    for statement in ("SHOW CREATE STREAM s", "DESCRIBE STREAM s"):  # read as it is, by who does not own it
        assert "s3cret" not in OfflineHub(mini.directory).sql(statement)[0].render()
    outside = tmp_path / "outside"
    shutil.copytree(taken, outside)
    mini.open()
    assert holding(mini.directory, TOKEN) == {"secrets.json", "savepoints/monday/secrets.json"}
    assert_as_declared(mini)
    assert "'***'" in mini.hub.sql("SHOW CREATE STREAM s")[0].render()
    mini.hub.sql("START PIPELINE p")
    assert given.pop() == TOKEN
    mini.hub.close(drain=False)
    restore(outside, tmp_path / "restored")
    check_script(SCRIPT.format(WRITTEN).split(";")[0], tmp_path / "restored")  # before it was ever opened
    mini.directory = tmp_path / "restored"
    mini.open()
    assert holding(mini.directory, TOKEN) == {"secrets.json"}


def reveal(root: Path) -> None:
    """Store tokens as earlier versions did: in the catalog and in the plans."""
    (name, value), *_ = json.loads((root / "secrets.json").read_text())["values"].items()
    (root / "secrets.json").unlink()
    (root / "catalog.previous.json").unlink()
    for path in (root / "catalog.json", *root.glob("streams/*/plans/*.json")):
        text = path.read_text().replace(name, value).replace("'***'", "'" + value.replace("'", "''") + "'")
        facts = json.loads(text.splitlines()[0])  # without a checksum
        if path.name == "catalog.json":
            facts["version"] = 1
        path.write_text(json.dumps(facts))


def test_a_token_that_was_changed_on_the_disk_is_never_taken_for_the_right_one(mini: Mini, given: list[str]) -> None:
    mini.hub.sql(SCRIPT.format(WRITTEN))
    mini.hub.close(drain=False)
    file = mini.directory / "secrets.json"
    whole = file.read_bytes()
    place = whole.index(b"s3cret")
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(StateDamaged) as caught:
        mini.open()
    assert "secrets.json" in caught.value.message
    file.write_bytes(whole)
    mini.open()


def test_a_lost_token_stops_its_stream_alone_and_the_script_brings_it_back(mini: Mini, given: list[str]) -> None:
    mini.hub.sql(SCRIPT.format(WRITTEN))
    mini.hub.sql("STOP PIPELINE p")
    mini.hub.close(drain=False)
    (mini.directory / "secrets.json").write_text("{")
    with pytest.raises(StateDamaged):
        mini.open()
    (mini.directory / "secrets.json").unlink()
    mini.open()
    with pytest.raises(StateDamaged):
        mini.hub.sql("START PIPELINE p")
    assert_as_declared(mini)
    mini.hub.sql("START PIPELINE p")
    assert given.pop() == TOKEN
    mini.crash()
    assert given.pop() == TOKEN


def test_names_tell_nothing_without_the_key_and_are_equal_for_equal_values(tmp_path: Path) -> None:
    first, second = Vault(), Vault()
    assert first.seal("a") == first.seal("a") != first.seal("b")
    assert first.seal("a") != second.seal("a")
    first.write(tmp_path, [first.seal("a")])
    again = read_vault(tmp_path)
    assert again.seal("a") == first.seal("a") and again.reveal(first.seal("a")) == "a"
    assert not again.knows(first.seal("b"))
