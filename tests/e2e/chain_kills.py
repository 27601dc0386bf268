"""A chain of pipelines that gets killed: the rows are cleaned once, and counted from the stream of the clean rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace.sinks.feed_log import FeedLog, stream_feed
from tests.e2e.kills import Case, read
from tests.e2e.support import put


@dataclass
class ChainCase(Case):
    """`clean` filters `s` into a sink and the stream `good`. `counted` counts that per ten seconds into the stream
    `tens`, and `summed` sums the counts per minute. `passed` copies `good` on the epoch host."""

    @property
    def outputs(self) -> list[Path]:
        return [self.root / name for name in ("clean_parquet", "passed_parquet", "summed_parquet")]

    def prepare(self) -> ChainCase:
        for number in range(3):
            part = range(number * self.rows // 3, (number + 1) * self.rows // 3)
            put(self.root / "in" / f"{number}.json", [self.lines(i)[0] for i in part])
        script = [
            *(f"CREATE SINK {p.name} WITH (type = 'parquet', path = '{p}')" for p in self.outputs),
            "CREATE STREAM s (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP, "
            "WATERMARK FOR ts AS ts - INTERVAL 3 SECONDS) "
            f"WITH (source = 'files', format = 'json', path = '{self.root / 'in'}', "
            f"max_epoch_bytes = '{self.epoch_bytes}')",
            "CREATE PIPELINE clean INTO clean_parquet, STREAM good AS SELECT id, k, v, ts FROM s WHERE v % 3 <> 0",
            "CREATE PIPELINE passed INTO passed_parquet WITH (host = 'epoch') AS SELECT id, k, v, ts FROM good",
            "CREATE PIPELINE counted INTO STREAM tens AS "
            "SELECT window.end AS t, k, count(*) AS n FROM good GROUP BY window(ts, '10 seconds'), k",
            "CREATE PIPELINE summed INTO summed_parquet AS SELECT unix_seconds(window.start) AS start, k, sum(n) AS n, "
            "count(*) AS tens FROM tens GROUP BY window(t, '1 minute'), k",
        ]
        (self.root / "app.sql").write_text(";\n".join(script))
        return self

    def check(self) -> None:
        rows = [r for i in range(self.rows) if (r := self.row(i))["v"] % 3]
        tens: Counter[tuple[int, str | None]] = Counter()
        for r in rows:
            tens[int(datetime.fromisoformat(r["ts"]).timestamp()) // 10 * 10 + 10, r["k"]] += 1
        sums: Counter[tuple[int, str | None]] = Counter()
        parts: Counter[tuple[int, str | None]] = Counter()
        for (end, k), n in tens.items():
            sums[end // 60 * 60, k] += n
            parts[end // 60 * 60, k] += 1
        plain = Counter((r["id"], r["k"], r["v"]) for r in rows)
        summed = Counter((start, k, n, parts[start, k]) for (start, k), n in sums.items())
        for path in self.outputs:
            columns: tuple[str, ...] = ("id", "k", "v")
            wanted: Counter[tuple[Any, ...]] = Counter(plain)
            if path.name.startswith("summed"):
                columns, wanted = ("start", "k", "n", "tens"), Counter(summed)
            found = Counter(read(path, columns))
            assert found == wanted, (
                f"{path.name}: {found.total()} rows, wanted {wanted.total()}; "
                f"too many: {list((found - wanted).items())[:5]}, missing: {list((wanted - found).items())[:5]}"
            )
        for name in ("good", "tens"):  # what was read is deleted, and nothing is left that no manifest names
            log = FeedLog(stream_feed(self.root / "state" / "streams" / name))
            kept = log.positions()
            assert len(kept) <= 6 and kept[-1] >= 6
            named = {log.segments / s.file for position in kept for s in log.epoch(position).segments}
            assert {p for p in log.segments.rglob("*") if p.is_file()} <= named


@dataclass
class DedicatedChainCase(Case):
    """`joined` joins `s` with `u`, which has the same rows, on the dedicated host, into a sink and the stream `pairs`.
    `counted` counts the pairs per ten seconds."""

    @property
    def outputs(self) -> list[Path]:
        return [self.root / name for name in ("joined_parquet", "counted_parquet")]

    def prepare(self) -> DedicatedChainCase:
        for number in range(3):
            part = range(number * self.rows // 3, (number + 1) * self.rows // 3)
            put(self.root / "in" / f"{number}.json", [self.lines(i)[0] for i in part])
        script = [
            *(f"CREATE SINK {p.name} WITH (type = 'parquet', path = '{p}')" for p in self.outputs),
            *(
                f"CREATE STREAM {name} (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP, "
                "WATERMARK FOR ts AS ts - INTERVAL 3 SECONDS) WITH (source = 'files', format = 'json', "
                f"path = '{self.root / 'in'}', max_epoch_bytes = '{self.epoch_bytes}')"
                for name in ("s", "u")
            ),
            "CREATE PIPELINE joined INTO joined_parquet, STREAM pairs AS SELECT s.id, s.k, u.v, s.ts FROM s JOIN u ON "
            "s.id = u.id AND u.ts BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL 2 SECONDS WHERE u.v % 3 <> 0",
            "CREATE PIPELINE counted INTO counted_parquet AS SELECT unix_seconds(window.start) AS start, k, "
            "count(*) AS n FROM pairs GROUP BY window(ts, '10 seconds'), k",
        ]
        (self.root / "app.sql").write_text(";\n".join(script))
        return self

    def check(self) -> None:
        rows = [r for i in range(self.rows) if (r := self.row(i))["v"] % 3]
        tens = Counter((int(datetime.fromisoformat(r["ts"]).timestamp()) // 10 * 10, r["k"]) for r in rows)
        joined, counted = self.outputs
        assert Counter(read(joined, ("id", "k", "v"))) == Counter((r["id"], r["k"], r["v"]) for r in rows)
        assert Counter(read(counted, ("start", "k", "n"))) == Counter((start, k, n) for (start, k), n in tens.items())
        log = FeedLog(stream_feed(self.root / "state" / "streams" / "pairs"))
        kept = log.positions()
        assert len(kept) <= 6
        named = {log.segments / s.file for position in kept for s in log.epoch(position).segments}
        assert {p for p in log.segments.rglob("*") if p.is_file()} <= named
