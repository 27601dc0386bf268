"""Bad records on the path a user runs: dead letters in sinks, failures that say where, options that belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import HeadraceError, PipelineFailed
from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

LINES = [
    '{"id": 1, "v": 1}', '{"id": 2, "v": "two"}', '{"id": 3', '{"id": 4, "v": 4}', '{"id": "five", "v": "five"}',
]  # fmt: skip


def _stream(place: Path, **options: str) -> str:
    more = "".join(f", {k} = '{v}'" for k, v in options.items())
    return (
        "CREATE STREAM s (id BIGINT, v BIGINT, rest STRING) "
        f"WITH (source = 'files', format = 'json', path = '{place / 'in'}'{more});"
    )


@pytest.mark.slow
def test_dead_letters_go_to_the_stream_s_sink_once_and_pipelines_get_what_is_good(
    tmp_path: Path, spark: SparkSession
) -> None:
    file = put(tmp_path / "in" / "0.json", LINES)
    with headrace.connect(tmp_path / "state", spark=spark, buckets=1) as hub:
        hub.sql(
            "CREATE SINK m WITH (type = 'memory');"
            f"CREATE SINK letters WITH (type = 'jsonl', path = '{tmp_path / 'letters'}');"
            + _stream(tmp_path, on_error="dead_letter", dead_letter_sink="letters")
            + "CREATE PIPELINE ids INTO m AS SELECT id FROM s;"
            "CREATE PIPELINE large INTO m AS SELECT v FROM s WHERE v > 1;"
            "CREATE PIPELINE counted INTO m AS SELECT count(*) AS n FROM s"
        )
        assert hub.wait_until_end(120)
        assert sorted(rows_of(hub.pipelines["ids"].results())) == [(1,), (2,), (4,)]
        assert rows_of(hub.pipelines["large"].results()) == [(4,)]
        assert rows_of(hub.pipelines["counted"].results())[-1] == (4,)  # needs no column: only structure concerns it
        status = hub.streams["s"].status()
        assert status.bad == {"bad_integer": 3, "bad_json": 1}
        assert status.dead_letters == 4
        assert [hub.pipelines[p].status().bad for p in ("ids", "large", "counted")] == [1, 2, 0]
        with pytest.raises(HeadraceError) as refused:
            hub.sql("DROP SINK letters")
        assert refused.value.code == "IN_USE"
    texts = [part.read_text() for part in (tmp_path / "letters").glob("part-*")]
    letters = [json.loads(line) for text in texts for line in text.splitlines()]
    found = {(x["offset"], x.get("column"), x["reason"]) for x in letters}
    offsets = [sum(len(line) + 1 for line in LINES[:i]) for i in range(len(LINES))]
    assert found == {
        (offsets[1], "v", "bad_integer"),
        (offsets[2], None, "bad_json"),
        (offsets[4], "id", "bad_integer"),
        (offsets[4], "v", "bad_integer"),
    }
    assert len(letters) == 4
    assert {x["origin"] for x in letters} == {str(file)}


@pytest.mark.slow
def test_fail_names_file_line_byte_and_column_and_shows_the_text(tmp_path: Path, spark: SparkSession) -> None:
    file = put(tmp_path / "in" / "0.json", LINES[:2])
    with headrace.connect(tmp_path / "state", spark=spark, buckets=1) as hub:
        hub.sql(
            "CREATE SINK m WITH (type = 'memory');"
            + _stream(tmp_path, on_error="fail")
            + "CREATE PIPELINE ids INTO m AS SELECT id FROM s;"
            "CREATE PIPELINE large INTO m AS SELECT id FROM s WHERE v > 1"
        )
        pipelines = hub.pipelines
        until(lambda: pipelines["large"].status().state == "failed", "the filter's bad value fails its pipeline")
        with pytest.raises(PipelineFailed) as failed:
            pipelines["large"].wait(1)
        for part in ("[BAD_RECORD]", str(file), "line 2", f"byte {len(LINES[0]) + 1}", "column v", LINES[1]):
            assert part in str(failed.value)
        assert pipelines["ids"].status().state == "running"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"on_error": "dead_letter"}, "MISSING_OPTION"),
        ({"dead_letter_sink": "m"}, "BAD_OPTION"),
        ({"on_error": "skip", "dead_letter_sink": "m"}, "BAD_OPTION"),
        ({"on_error": "dead_letter", "dead_letter_sink": "nowhere"}, "UNKNOWN_SINK"),
    ],
)
def test_dead_letter_options_that_do_not_belong_together_are_refused(
    tmp_path: Path, options: dict[str, str], code: str
) -> None:
    (tmp_path / "in").mkdir()
    with headrace.connect(tmp_path / "state") as hub, pytest.raises(HeadraceError) as refused:
        hub.sql("CREATE SINK m WITH (type = 'memory');" + _stream(tmp_path, **options))
    assert refused.value.code == code
    assert refused.value.span is not None
