"""The input of the oracle tests: rows with every kind of value and NULL, ordered by time except for a jitter.

A row is at most JITTER_SECONDS older than the newest row before it, and the streams' delay is larger: no row is late
under any cut.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

COLUMNS = (
    "id BIGINT, device STRING, kind STRING, ok BOOLEAN, v INT, x DOUBLE, price DECIMAL(10,2), day DATE, "
    "at TIMESTAMP, ts TIMESTAMP"
)
DELAY = "30 SECONDS"
JITTER_SECONDS = 20
_DEVICES = ["d1", "d2", "Dröhn-3", "d 4", "x,y", 'say "hi"', None]
_START = datetime(2026, 1, 31, 23, 40, tzinfo=UTC)


def events(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """`count` rows over about 40 minutes, across a month's end, with gaps that end sessions."""
    rng = random.Random(seed)
    now = _START
    for i in range(count):
        now += timedelta(microseconds=rng.randrange(1_100_000))
        if rng.random() < 0.004:
            now += timedelta(seconds=25)
        yield {
            "id": i,
            "device": rng.choice(_DEVICES),
            "kind": rng.choice(["a", "b"]),
            "ok": rng.choice([True, False, None]),
            "v": rng.choice([None, *range(-3, 100)]),
            "x": rng.choice([None, 0.0, rng.uniform(-1e6, 1e6), rng.random()]),
            "price": rng.choice([None, f"{rng.randrange(-99999, 99999) / 100:.2f}"]),
            "day": rng.choice([None, date(2024, 2, 28) + timedelta(days=rng.randrange(3))]),
            "at": rng.choice([None, now - timedelta(days=rng.randrange(400))]),
            "ts": now - timedelta(microseconds=rng.randrange(JITTER_SECONDS * 1_000_000)),
        }


def as_json(row: dict[str, Any]) -> str:
    """One line; a NULL is written or left out, in turn. The price is a number with its digits as they are."""
    plain = {k: _text(v) for k, v in row.items() if v is not None or row["id"] % 2}
    if row["price"] is not None:
        plain["price"] = "PRICE"
    return json.dumps(plain, ensure_ascii=row["id"] % 3 == 0).replace('"PRICE"', str(row["price"]))


def as_csv(row: dict[str, Any]) -> str:
    """One line; text with a delimiter or a quote in it is quoted."""
    return ",".join(_field(v) for v in row.values())


def _field(value: Any) -> str:
    if value is None:
        return ""
    text = str(_text(value)).lower() if isinstance(value, bool) else str(_text(value))
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value
