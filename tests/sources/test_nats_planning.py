"""What the planner makes of a JetStream server's answers, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DataLost, UnknownTopic
from headrace.model.definitions import StreamDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.sources import nats
from headrace.sources.nats import JetStreamSource, StreamFacts


class Server:
    """A server with one stream. `facts` is None while it does not know the stream."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.facts: StreamFacts | None = StreamFacts("monday", 1, 6, 100.0, "limits")
        self.now = 0.0
        monkeypatch.setattr(nats, "stream_facts", self._answer)
        monkeypatch.setattr(JetStreamSource, "_show", lambda source, sequence: None)

    def _answer(self, link: Any, name: str) -> StreamFacts:
        if self.facts is None:
            raise UnknownTopic("stream not found", advice="Create it.")
        return self.facts

    def source(self, directory: Path, **options: str) -> JetStreamSource:
        given = {"url": "nats://127.0.0.1:1", "stream": "S", **options}
        stream = StreamDef("s", Schema((Field("a", BIGINT),)), None, 0, "nats", "json", given)
        made = nats.NATS.make(stream, directory, lambda: self.now)
        assert isinstance(made, JetStreamSource)
        return made


@pytest.mark.parametrize("loss", ["skip", "fail"])
def test_a_stream_that_vanishes_and_comes_back_continues_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    server = Server(monkeypatch)
    source = server.source(tmp_path, on_data_loss=loss)
    end = source.latest(source.initial(), None)
    server.facts = None
    server.now += 1
    assert source.latest(end, None) == end  # for a moment
    server.now += nats.OUTAGE
    with pytest.raises(UnknownTopic) as caught:
        source.latest(end, None)
    assert caught.value.retry_helps
    server.facts = StreamFacts("monday", 1, 9, 100.0, "limits")
    source = server.source(tmp_path, on_data_loss=loss)  # the query was started again
    later = source.latest(end, None)
    splits: list[Any] = list(source.splits(end, later, 4))
    assert [(s.begin, s.end, s.lost) for s in splits] == [(6, 9, 0)]


def test_another_stream_of_the_same_name_is_lost_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    end = server.source(tmp_path).latest(server.source(tmp_path).initial(), None)
    server.facts = StreamFacts("tuesday", 1, 3, 100.0, "limits")
    with pytest.raises(DataLost):
        server.source(tmp_path).latest(end, None)
    source = server.source(tmp_path, on_data_loss="skip")
    splits: list[Any] = list(source.splits(end, source.latest(end, None), 4))
    assert [(s.begin, s.end, s.lost) for s in splits] == [(1, 3, 1)]
