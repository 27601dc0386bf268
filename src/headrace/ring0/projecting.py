"""Runs stateless pipelines whose select list has only columns together: one statement evaluates all their filters.

DuckDB takes a third of a millisecond for a statement over a few rows, and there would be one for each pipeline. Arrow
then picks the rows of each pipeline, in their order.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from headrace.exec import duck
from headrace.exec.sizing import fits
from headrace.model.program import Meaning
from headrace.ring0.copying import copied, copied_schema
from headrace.ring0.runner import Runner

# DuckDB's WHERE evaluates a condition only on rows that the one before has kept, which pays in a large batch.
MOST_ROWS = 16 * 1024


def run_projected(
    runners: Mapping[int, Runner], instances: Iterable[int], rows: pa.Table, known: Mapping[str, str]
) -> dict[int, Exception | None]:
    """Run the pipelines among `instances` that can run together over `rows`. `known` maps filters to columns that hold
    their result. Returns the instances that are done, each with its failure if its sink failed. If a filter fails on
    some row, none of them is done: then each has to run by itself, which shows whose filter it is."""
    if rows.num_rows > MOST_ROWS:
        return {}
    given = rows.schema
    alike: dict[Meaning, list[tuple[Runner, pa.Schema]]] = defaultdict(list)
    for instance in instances:
        runner = runners[instance]
        program = runner.pipeline.program
        schema = copied_schema(program.ring0, given) if program.ring1 is None else None
        if schema is not None and fits(program.ring0.growth, rows):
            alike[program.meaning].append((runner, schema))
    done: dict[int, Exception | None] = {}
    for meaning, found in alike.items():
        if len(found) > 1:
            done |= _run(meaning, found, rows, known)
    return done


def _run(
    meaning: Meaning, members: list[tuple[Runner, pa.Schema]], rows: pa.Table, known: Mapping[str, str]
) -> dict[int, Exception | None]:
    began = time.perf_counter()
    texts = dict.fromkeys(r.pipeline.program.ring0.filter for r, _ in members)
    columns = [
        f"CAST(({known.get(text, text)}) AS BOOLEAN) AS f{i}" for i, text in enumerate(texts) if text is not None
    ]
    try:
        found = duck.run(meaning, f"SELECT {', '.join(columns)} FROM rows", {"rows": rows}) if columns else None
    except Exception:  # each pipeline evaluates its own filter then, which shows whose filter fails
        return {}
    masks: dict[str, Any] = {}
    for i, text in enumerate(texts):
        if text is not None and found is not None:
            masks[text] = found.column(f"f{i}")
    spent = (time.perf_counter() - began) / len(members)
    done: dict[int, Exception | None] = {}
    for runner, schema in members:
        began = time.perf_counter()
        ring0, problem = runner.pipeline.program.ring0, None
        mask = None if ring0.filter is None else masks[ring0.filter]
        if mask is None or any(chunk.true_count for chunk in mask.chunks):
            whole = copied(ring0, rows, schema)
            try:
                runner.take_projected(whole if mask is None else whole.filter(mask))
            except Exception as failure:  # its sink failed, which must not stop the others
                problem = failure
        runner.seconds += spent + time.perf_counter() - began
        done[runner.pipeline.instance] = problem
    return done
