"""Time zones and date patterns of the kernels: java.time's rules, and what is refused."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.exec.kernels.date_patterns import BadPattern, check_written, compile_pattern
from headrace.exec.kernels.kernel import KernelError
from headrace.exec.kernels.number_texts import KERNELS as NUMBERS
from headrace.exec.kernels.pattern_reading import read, reader
from headrace.exec.kernels.timestamps import KERNELS as TIMES
from headrace.exec.kernels.zones import DAY, SECOND, UnknownZone, known, zone, zone_by_id

YEARS_400 = 146_097 * 86_400


def micros(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    "name", ["America/New_York", "Europe/Berlin", "Asia/Kolkata", "Europe/Dublin", "Africa/Casablanca", "Pacific/Apia"]
)
def test_a_zone_has_the_offsets_of_the_database_and_repeats_after_400_years(name: str) -> None:
    chance = random.Random(3)
    seconds = [chance.randrange(-4 * 10**9, 16 * 10**9) for _ in range(500)]
    expected = [datetime.fromtimestamp(s, ZoneInfo(name)).utcoffset() for s in seconds]
    found = zone(name).offset(np.array(seconds, np.int64) * SECOND) // SECOND
    assert found.tolist() == [offset.total_seconds() for offset in expected if offset is not None]
    late = np.array([chance.randrange(5 * 10**9, 16 * 10**9) for _ in range(100)], np.int64)
    again = zone(name).offset((late + 100 * YEARS_400) * SECOND)
    assert again.tolist() == zone(name).offset(late * SECOND).tolist()


@pytest.mark.parametrize(
    ("reading", "instant"),
    [
        ("2024-03-10 01:59:59", "2024-03-10 06:59:59"),
        ("2024-03-10 02:30:00", "2024-03-10 07:30:00"),  # the gap: as much later as it is long
        ("2024-03-10 03:00:00", "2024-03-10 07:00:00"),
        ("2024-11-03 01:30:00", "2024-11-03 05:30:00"),  # the first of two
        ("2024-11-03 02:00:00", "2024-11-03 07:00:00"),
    ],
)
def test_a_reading_in_a_gap_or_an_overlap_takes_the_offset_before_it(reading: str, instant: str) -> None:
    found = zone("America/New_York").instant(np.array([micros(reading)], np.int64))
    assert found.tolist() == [micros(instant)]


@pytest.mark.parametrize(
    ("text", "seconds"), [("Z", 0), ("+5", 18_000), ("-1:3", -3780), ("UTC+1", 3600), ("EST", -18_000)]
)
def test_zones_can_be_offsets_and_abbreviations(text: str, seconds: int) -> None:
    assert zone(text).offset(np.array([0], np.int64)).tolist() == [seconds * SECOND]


@pytest.mark.parametrize("text", ["", "Mars/Base", "europe/berlin", "+19:00", "+1:60", "posixrules", "../UTC", "ROC"])
def test_texts_that_are_no_zones_in_java_are_refused(text: str) -> None:
    assert not known(text)
    with pytest.raises(UnknownZone):
        zone(text)


@pytest.mark.parametrize("text", ["GMT+0", "GMT-0", "gmt+0", "UTC+0", "UT+1"])
def test_the_letters_vv_read_no_offset_without_minutes_even_if_it_names_a_region(text: str) -> None:
    assert zone_by_id(text) is None


@pytest.mark.parametrize("text", ["GMT0", "gmt0", "Etc/GMT+0", "etc/gmt-0", "Greenwich", "GMT+00:00"])
def test_the_letters_vv_read_other_names_of_gmt(text: str) -> None:
    found = zone_by_id(text)
    assert found is not None and found.offset(np.array([0], np.int64)).tolist() == [0]


@pytest.mark.parametrize("pattern", ["w", "YYYY", "MMMMM", "z", "F", "V", "#", "yyyy'", "]", "OO", "SSSSSSSSSS"])
def test_letters_that_cannot_be_written_as_in_spark_are_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        check_written(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "E",
        "G",
        "V",
        "[VV]",
        "VVyyyy",
        "VV:mm",
        "VV X",
        "yyyyMMddHHmmssSSS",
        "dM",
        "HH hh",
        "yyyy yyyy",
        "HH a",
        "D",
        "MM D y",
        "[Z]yyyy",
        "yyyy[MM]",
    ],
)
def test_patterns_that_java_reads_in_its_own_way_are_refused(pattern: str) -> None:
    compile_pattern(pattern)
    with pytest.raises(BadPattern):
        reader(pattern)


def test_texts_that_do_not_match_are_not_good() -> None:
    found = read("d/MMM/yyyy", pa.array(["1/feb/2024", "30/Feb/2024", None, "1/2/2024"]))
    assert found.good.tolist() == [True, False, False, False]
    assert found.micros[0] == micros("2024-02-01")


@pytest.mark.parametrize(
    ("number", "text"),
    [(1e7, "1.0E7"), (9.99e-4, "9.99E-4"), (-1.5e300, "-1.5E300"), (5e-324, "4.9E-324"), (1e-323, "9.9E-324"),
     (1e23, "1.0E23"), (123456789.125, "1.23456789125E8")],
)  # fmt: skip
def test_numbers_have_the_shortest_digits_in_javas_spelling(number: float, text: str) -> None:
    (kernel,) = (k for k in NUMBERS if k.name == "hr_double_text")
    assert kernel.function(pa.array([number])).to_pylist() == [text]


@given(
    st.one_of(st.integers(-(2**63), -(2**63) + 2 * DAY), st.integers(2**63 - 2 * DAY, 2**63 - 1)),
    st.integers(-3, 3) | st.sampled_from([-(2**62), 2**62, -213_503_983, 213_503_983]),
    st.sampled_from(["UTC", "+14:00", "+09:00", "-08:00"]),
)
def test_days_are_added_up_to_the_first_and_last_timestamp(start: int, days: int, name: str) -> None:
    add = next(kernel for kernel in TIMES if kernel.name == "hr_add_days").function
    given = (pa.array([start], pa.int64()), pa.array([days], pa.int64()), pa.array([name]))
    wanted = start + days * DAY
    if -(2**63) <= wanted < 2**63:
        assert add(*given).to_pylist() == [wanted]
    else:
        with pytest.raises(KernelError):
            add(*given)
