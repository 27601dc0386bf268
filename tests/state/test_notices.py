"""Notices: the hub accepts only its own, and nothing that arrives can stop the listener."""

from __future__ import annotations

import json
import queue
import socket
from collections.abc import Iterator

import pytest

from headrace.state.notices import (
    NOTICE_VERSION,
    EpochPlanned,
    Notice,
    NoticeBoard,
    PlanningHeld,
    PlanningPaused,
    ProbePlanned,
    SourceIdle,
    send_notice,
)

EVERY_KIND = (
    EpochPlanned(stream="s", pid=7, plan=2, epoch=3, backlog=40, planning_ms=1.5),
    ProbePlanned(stream="s", pid=7, epoch=3),
    SourceIdle(stream="s", pid=7, plan=2, exhausted=True),
    PlanningHeld(stream="s", pid=7),
    PlanningPaused(stream="s", pid=7, plan=2, pipelines="p\nq"),
)
HELD = PlanningHeld(stream="s", pid=7)


@pytest.fixture
def received() -> queue.Queue[Notice]:
    return queue.Queue()


@pytest.fixture
def board(received: queue.Queue[Notice]) -> Iterator[NoticeBoard]:
    made = NoticeBoard(received.put)
    yield made
    made.close()


def send(board: NoticeBoard, message: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(message, ("127.0.0.1", board.port))


@pytest.mark.parametrize("notice", EVERY_KIND)
def test_a_notice_arrives_as_it_was_sent(board: NoticeBoard, received: queue.Queue[Notice], notice: Notice) -> None:
    send_notice(board.port, board.token, notice)
    assert received.get(timeout=5) == notice


def test_a_notice_with_a_wrong_token_is_ignored(board: NoticeBoard, received: queue.Queue[Notice]) -> None:
    send_notice(board.port, "0" * 32, HELD)
    send_notice(board.port, board.token, PlanningHeld(stream="t", pid=7))
    assert received.get(timeout=5).stream == "t"
    assert received.empty()


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"3", b'"token"', b'{"token": {}}', b"[" * 50_000]
)
def test_garbage_does_not_stop_the_listener(board: NoticeBoard, received: queue.Queue[Notice], garbage: bytes) -> None:
    send(board, garbage)
    send_notice(board.port, board.token, HELD)
    assert received.get(timeout=5) == HELD


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": NOTICE_VERSION + 1},
        {"kind": "gone"},
        {"kind": ["planned"]},
        {"epoch": "3"},
        {"epoch": None},
        {"plan": True},
        {"stream": 3},
    ],
)
def test_a_notice_that_is_not_whole_is_ignored(
    board: NoticeBoard, received: queue.Queue[Notice], wrong: dict[str, object]
) -> None:
    whole = {"token": board.token, "version": NOTICE_VERSION, "kind": "planned", "stream": "s", "pid": 7}
    send(board, json.dumps(whole | {"plan": 1, "epoch": 3, "backlog": 0, "planning_ms": 0.0} | wrong).encode())
    send_notice(board.port, board.token, HELD)
    assert received.get(timeout=5) == HELD


def test_a_board_listens_on_loopback_only_and_each_has_its_own_token(board: NoticeBoard) -> None:
    other = NoticeBoard(lambda notice: None)
    assert other.token != board.token
    assert other.port != board.port
    other.close()


def test_sending_to_a_hub_that_is_gone_does_no_harm() -> None:
    board = NoticeBoard(lambda notice: None)
    board.close()
    for _ in range(3):
        send_notice(board.port, board.token, HELD)
