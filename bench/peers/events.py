"""A seeded generator of Nexmark's events as JSON lines: of 50 events one is a person, three are auctions, 46 are bids.

Half of the bids go to a hot auction and three quarters come from a hot bidder of the last hundred; prices spread
evenly over six powers of ten. Event time goes forward by a millisecond an event. The same seed gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

START = np.datetime64("2026-01-01T00:00:00.000", "ms")
CHANNELS = np.array(["Google", "Facebook", "Baidu", "Apple"])
CITIES = np.array(["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle"])
STATES = np.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz "))


def events(first: int, count: int, seed: int = 1) -> pa.Table:
    """The events `first` to `first + count - 1`. A column that an event does not have is NULL."""
    random = np.random.Generator(np.random.PCG64([seed, first]))
    number = np.arange(first, first + count)
    within = number % 50
    kind = np.where(within == 0, 0, np.where(within < 4, 1, 2))
    newest_auction, newest_person = number // 50 * 3 + np.clip(within, 1, 3), number // 50 + 1
    bid, auction, person = kind == 2, kind == 1, kind == 0
    hot = random.integers(0, 2, count) == 0
    recent = np.maximum(newest_auction - random.integers(0, 100, count), 0)
    frequent = random.integers(0, 4, count) > 0
    anyone = np.maximum(newest_person - random.integers(0, 1000, count), 0)
    price = np.round(10 ** (random.random(count) * 6) * 100).astype(np.int64)
    famous = random.integers(0, 2, count) == 0
    channel_number = random.integers(0, 10_000, count)
    channel = np.where(famous, CHANNELS[channel_number % 4], np.char.add("channel-", channel_number.astype(str)))
    path = "https://www.nexmark.com/" + _words(random, count, 5) + "/" + _words(random, count, 5) + "/"
    path += _words(random, count, 5) + "/item.htm?query=1"
    url = np.where(famous, path, path + "&channel_id=" + channel_number.astype(str).astype(object))
    time = START + number.astype("timedelta64[ms]")
    texts = {name: _words(random, count, length) for name, length in (("extra", 60), ("item", 20), ("description", 80))}
    return pa.table(
        {
            "event_type": pa.array(kind.astype(np.int32)),
            "date_time": pa.array(_texts(time), pa.string()),
            "auction": _only(np.where(hot, newest_auction // 100 * 100, recent), bid),
            "bidder": _only(np.where(frequent, newest_person // 100 * 100 + 1, anyone), bid),
            "price": _only(price, bid),
            "channel": _only(channel.astype(object), bid),
            "url": _only(url, bid),
            "extra": pa.array(texts["extra"], pa.string()),
            "id": _only(np.where(person, newest_person, newest_auction), ~bid),
            "name": _only(_words(random, count, 12), person),
            "email": _only(_words(random, count, 7) + "@" + _words(random, count, 5) + ".com", person),
            "city": _only(CITIES[number % len(CITIES)].astype(object), person),
            "state": _only(STATES[number % len(STATES)].astype(object), person),
            "item": _only(texts["item"], auction),
            "description": _only(texts["description"], auction),
            "initial_bid": _only(price, auction),
            "reserve": _only(price * 2, auction),
            "expires": _only(_texts(time + np.timedelta64(20, "s")), auction),
            "seller": _only(anyone, auction),
            "category": _only(10 + number % 5, auction),
        }
    )


def write_events(directory: Path, files: int, rows: int) -> list[Path]:
    """Write `files` files of `rows` events each; event time goes on from file to file."""
    directory.mkdir(parents=True)
    paths = [directory / f"{number:04}.json" for number in range(files)]
    with duckdb.connect() as database:
        for number, path in enumerate(paths):
            database.register("made", events(number * rows, rows))
            database.sql(f"COPY (SELECT * FROM made) TO '{path}' (FORMAT json)")
    return paths


def _only(values: np.ndarray, mask: np.ndarray) -> pa.Array[Any]:
    """NULL where `mask` is false."""
    found: pa.Array[Any] = pa.array(values, mask=~mask)
    return found


def _texts(values: np.ndarray) -> np.ndarray:
    return np.char.add(np.datetime_as_string(values, unit="ms"), "Z").astype(object)


def _words(random: np.random.Generator, count: int, length: int) -> np.ndarray:
    letters = LETTERS[random.integers(0, 26, (count, length))]
    return letters.view(f"<U{length}").reshape(count).astype(object)
