"""Options: every mistake has its own code, and every text that is accepted means one value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.base.options import (
    Option,
    Reader,
    boolean,
    check_options,
    choice,
    duration,
    integer,
    number,
    size,
    text,
)
from headrace.errors import BadOption, MissingOption, UnknownOption

DECLARED = (
    Option("path", text, required=True, help="directory or glob"),
    Option("tail", boolean, default=False),
    Option("rate", integer(1, 1000), default=10),
)


def test_values_are_read_and_defaults_filled_in() -> None:
    assert check_options("source 'files'", DECLARED, {"PATH": "/data", "rate": " 7 "}) == {
        "path": "/data",
        "tail": False,
        "rate": 7,
    }


def test_an_unknown_option_names_the_nearest_known_one() -> None:
    with pytest.raises(UnknownOption) as caught:
        check_options("source 'files'", DECLARED, {"path": "x", "tial": "true"})
    assert caught.value.params == {"option": "tial", "owner": "source 'files'", "did_you_mean": "tail"}


def test_a_missing_option_is_named() -> None:
    with pytest.raises(MissingOption) as caught:
        check_options("source 'files'", DECLARED, {"tail": "true"})
    assert caught.value.params["option"] == "path"


def test_a_bad_value_is_named_with_its_option() -> None:
    with pytest.raises(BadOption) as caught:
        check_options("source 'files'", DECLARED, {"path": "x", "rate": "0"})
    assert (caught.value.params["option"], caught.value.params["value"]) == ("rate", "0")


@pytest.mark.parametrize(
    ("read", "raw", "value"),
    [
        (boolean, " TRUE ", True),
        (boolean, "false", False),
        (integer(-5, 5), "-5", -5),
        (number(0, 1), "0.25", 0.25),
        (choice("a", "b"), "B", "b"),
        (size, "1048576", 1048576),
        (size, "64 MB", 64_000_000),
        (size, "1.5kib", 1536),
        (size, "9007199254740993", 9007199254740993),
        (duration, "500 ms", 500_000),
        (duration, "1.5s", 1_500_000),
        (duration, "1h", 3_600_000_000),
        (duration, "0.1 ms", 100),
    ],
)
def test_text_becomes_its_value(read: Reader, raw: str, value: Any) -> None:
    assert read(raw) == value


@pytest.mark.parametrize(
    ("read", "raw"),
    [
        (boolean, "yes"),
        (integer(0, 5), "6"),
        (integer(0, 5), "1.0"),
        (number(0, 1), "nan"),
        (number(0, 1), "1.01"),
        (choice("a"), "c"),
        (size, "-1"),
        (size, "1 XB"),
        (duration, "10"),
        (duration, "1 fortnight"),
    ],
)
def test_a_text_outside_the_range_is_a_value_error(read: Reader, raw: str) -> None:
    with pytest.raises(ValueError):
        read(raw)


READERS = (boolean, integer(0, 9), number(0, 9), choice("a", "b"), size, duration)


@given(st.sampled_from(READERS), st.one_of(st.text(max_size=12), st.from_regex(r"\d{1,5}(\.\d+)? ?[a-z]{0,3}")))
@example(size, "9" * 400)
@example(duration, "9" * 400 + "s")
@example(integer(0, 9), "9" * 5000)
def test_any_text_is_read_or_raises_bad_option(read: Reader, raw: str) -> None:
    try:
        check_options("sink 'x'", (Option("o", read),), {"o": raw})
    except BadOption as problem:
        assert problem.params["option"] == "o"


def test_a_refused_value_shows_no_password() -> None:
    """The error may end up in a log."""
    declared = (Option("url", _refuse), Option("token", _refuse, secret=True))
    urls = ("http://user:sesame@host/x", "postgresql://u@host/db?sslpassword=sesame&x=1", "host=h password=sesame")
    for name, value in (*(("url", url) for url in urls), ("token", "sesame")):
        with pytest.raises(BadOption) as raised:
            check_options("sink 'x'", declared, {name: value})
        assert "sesame" not in raised.value.render() + str(raised.value.params)


def _refuse(raw: str) -> Any:
    raise ValueError("something else")
