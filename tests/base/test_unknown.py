"""Errors for names that do not exist suggest the closest name that does."""

from __future__ import annotations

from headrace.base.unknown import closest, unknown
from headrace.errors import UnknownColumn, UnknownStream


def test_the_closest_name_is_offered_only_when_one_is_near() -> None:
    assert closest("devce", ["device", "ts"]) == "device"
    assert closest("qqqq", ["device", "ts"]) is None


def test_a_suggestion_is_spelled_as_it_was_declared() -> None:
    assert closest("devcename", ["deviceName"]) == "deviceName"


def test_an_unknown_name_carries_what_was_asked_for_and_the_suggestion() -> None:
    error = unknown(UnknownStream, "stream", "sensor", ["sensors", "orders"])
    assert error.params == {"name": "sensor", "did_you_mean": "sensors"}
    assert "'sensors'" in error.advice


def test_the_known_names_are_listed_when_none_is_similar() -> None:
    error = unknown(UnknownStream, "stream", "qqqq", ["sensors", "orders"])
    assert error.params["did_you_mean"] is None
    assert "sensors" in error.advice and "orders" in error.advice


def test_the_suggestion_for_a_dotted_name_compares_one_part_of_it() -> None:
    error = unknown(UnknownColumn, "column", "s.devce", ["device"], of="stream 's'", like="devce", stream="s")
    assert error.params == {"name": "s.devce", "stream": "s", "did_you_mean": "device"}
