"""Notices: only those with the right token count, and no message stops the listener."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.state.notices import NoticeBoard, send_notice


@pytest.fixture
def heard() -> queue.Queue[dict[str, Any]]:
    return queue.Queue()


@pytest.fixture
def board(heard: queue.Queue[dict[str, Any]]) -> Iterator[NoticeBoard]:
    made = NoticeBoard(heard.put)
    yield made
    made.close()


def test_a_notice_arrives_with_its_facts(board: NoticeBoard, heard: queue.Queue[dict[str, Any]]) -> None:
    send_notice(board.port, board.token, "s", "planned", epoch=3)
    notice = heard.get(timeout=5)
    assert {k: notice[k] for k in ("stream", "kind", "epoch")} == {"stream": "s", "kind": "planned", "epoch": 3}


def test_a_notice_with_a_wrong_token_is_ignored(board: NoticeBoard, heard: queue.Queue[dict[str, Any]]) -> None:
    send_notice(board.port, "0" * 32, "s", "idle")
    send_notice(board.port, board.token, "t", "idle")
    assert heard.get(timeout=5)["stream"] == "t"
    assert heard.empty()


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"3", b'"token"', b'{"token": {}}', b"[" * 50_000]
)
def test_garbage_does_not_stop_the_listener(
    board: NoticeBoard, heard: queue.Queue[dict[str, Any]], garbage: bytes
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(garbage, ("127.0.0.1", board.port))
    send_notice(board.port, board.token, "s", "held")
    assert heard.get(timeout=5)["kind"] == "held"


def test_a_board_listens_on_loopback_only_and_each_has_its_own_token(board: NoticeBoard) -> None:
    other = NoticeBoard(lambda notice: None)
    assert other.token != board.token
    assert other.port != board.port
    other.close()


def test_a_notice_to_a_closed_hub_does_no_harm() -> None:
    board = NoticeBoard(lambda notice: None)
    board.close()
    for _ in range(3):
        send_notice(board.port, board.token, "s", "idle")
