"""Runs many lanes with windows that emit on close together: every lane appends for itself, all close together.

Kernels close the windows of lanes with the same merges and outputs in one call (`headrace.ring1.merge_program`). What
they cannot do, DuckDB does in few statements (`headrace.exec.stacks`).

This is for lanes in which nothing but rows and a watermark arrives. An epoch with an end takes
`headrace.ring1.lane.advance`, and so does a lane that had an end of input.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.bridge.merging import CannotMerge
from headrace.bridge.packs import PackEntry
from headrace.errors import InternalError
from headrace.exec.aggregates import merge_and_finish, schema_of
from headrace.exec.stacks import Stack, named, stack_of
from headrace.model.definitions import PipelineDef
from headrace.model.program import Meaning, Ring1Program
from headrace.ring1.lane_state import LaneHeader, Outcome, StateSize, Store, outcome, require_group_limit
from headrace.ring1.log_lane import Logs, decode_segments
from headrace.ring1.merge_program import merge_program

# Lanes with more bytes than this to close run by themselves, and a stack has at most so many bytes.
LARGE_LANE = 1 << 20
STACK_BYTES = 16 << 20

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LogStep:
    """A lane that has appended its rows. `due` and `whole` are the segments to close: the number of rows, and the rows.
    Those in `whole` are the only ones of their window and come from one task, which has sent one row per group."""

    pipeline: PipelineDef
    store: Store
    header: LaneHeader
    due: list[tuple[int, bytes]]
    whole: list[tuple[int, bytes]]
    closed: int
    size: int  # bytes that are due
    kept: StateSize

    @property
    def segments(self) -> list[tuple[int, bytes]]:
        """All segments to close."""
        return [*self.due, *self.whole]

    @property
    def program(self) -> Ring1Program:
        return _ring1(self.pipeline)

    @property
    def meaning(self) -> Meaning:
        return self.pipeline.program.meaning

    def finish(self, output: pa.Table | None) -> Outcome:
        """Store the header. Call it when the windows are closed."""
        data = self.header.encode()
        self.store.set_header(data)
        self.header.remember(data)
        return outcome(output, 0, closed=self.closed, header=self.header, size=self.kept)


def begin(pipeline: PipelineDef, store: Store, entries: Sequence[PackEntry], watermark: int | None) -> LogStep | None:
    """Append the rows of an epoch to a lane. None if the lane had an end of input; then nothing is changed."""
    header = LaneHeader.recall(store.header())
    if header.floor is not None:
        return None
    windows: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
    for entry in entries:
        if entry.start == entry.end:
            return None
        windows.setdefault((entry.start, entry.end), []).append((entry.rows, entry.payload))
    if header.watermark is None or (watermark is not None and watermark > header.watermark):
        header.watermark = watermark
    limit = header.watermark
    program = _ring1(pipeline)
    logs = Logs(program, pipeline.program.meaning, store=store, header=header, max_values=pipeline.max_group_values)
    over = set() if limit is None else {b for known in (header.logs, windows) for b in known if b[1] <= limit}
    due: list[tuple[int, bytes]] = []
    whole: list[tuple[int, bytes]] = []
    for bounds, payloads in windows.items():
        if bounds not in over:
            logs.append_encoded(bounds, payloads)
        elif len(payloads) == 1 and bounds not in header.logs:
            whole += payloads
        else:
            due += payloads
    for bounds in sorted(over & header.logs.keys()) if over else ():
        due += logs.take_encoded(bounds, header.logs.pop(bounds))
    share = -(-pipeline.max_groups // pipeline.buckets)
    size = header.size
    if size.rows > share:
        logs.compact()
        size = header.size
    require_group_limit(size.groups, pipeline.max_groups)
    return LogStep(
        pipeline,
        store,
        header=header,
        due=due,
        whole=whole,
        closed=len(over),
        size=sum([len(data) for _, data in (*due, *whole)]),
        kept=size,
    )


def close(steps: Sequence[LogStep]) -> list[pa.Table | Exception | None]:
    """Close the windows that are due: the output of each lane, or why it failed."""
    found: list[pa.Table | Exception | None] = [None] * len(steps)
    shapes: dict[str, list[int]] = defaultdict(list)
    left: list[int] = []
    for i, step in enumerate(steps):
        if step.due or step.whole:
            program = merge_program(step.program)
            (left if program is None else shapes[program.shape]).append(i)
    for numbers in shapes.values():
        for group in _groups(steps, numbers):
            outputs = _merged([steps[i] for i in group])
            if outputs is None:
                left += group
                continue
            for i, output in zip(group, outputs, strict=True):
                found[i] = output
    _close_with_duckdb(steps, sorted(left), found)
    return found


def _merged(steps: list[LogStep]) -> list[pa.Table] | None:
    """Close the windows of lanes of one shape with kernels. None if only DuckDB can."""
    program = merge_program(steps[0].program)
    assert program is not None
    try:
        outputs = program.close([step.due for step in steps], [step.whole for step in steps])
    except CannotMerge:
        return None
    except Exception:  # a defect of ours: DuckDB gives the same rows, only slower
        _log.warning("the kernels failed, and DuckDB merges instead", exc_info=True)
        return None
    return [named(step.program, output) for step, output in zip(steps, outputs, strict=True)]


def _close_with_duckdb(
    steps: Sequence[LogStep], numbers: Sequence[int], found: list[pa.Table | Exception | None]
) -> None:
    """Fill `found` for these lanes."""
    stacks: dict[tuple[Meaning, str, pa.Schema], list[int]] = defaultdict(list)
    for i in numbers:
        step = steps[i]
        stack = stack_of(step.program) if step.size <= LARGE_LANE else None
        if stack is None:
            found[i] = _alone(step)
        else:
            stacks[step.meaning, stack.sql, stack.partials].append(i)
    for alike in stacks.values():
        for group in _groups(steps, alike):
            for i, output in zip(group, _together([steps[i] for i in group]), strict=True):
                found[i] = output


def _groups(steps: Sequence[LogStep], numbers: list[int]) -> list[list[int]]:
    groups: list[list[int]] = [[]]
    size = 0
    for i in numbers:
        if groups[-1] and size + steps[i].size > STACK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(i)
        size += steps[i].size
    return groups


def _together(steps: list[LogStep]) -> list[pa.Table | Exception | None]:
    """Close the windows of a stack. If that fails, each lane runs by itself, which shows which one fails."""
    stack = stack_of(steps[0].program)
    try:
        outputs = None if stack is None else _stacked(stack, steps)
    except Exception:
        outputs = None
    if outputs is None:
        return [_alone(step) for step in steps]
    return [named(step.program, output) for step, output in zip(steps, outputs, strict=True)]


def _stacked(stack: Stack, steps: list[LogStep]) -> list[pa.Table] | None:
    segments = [segment for step in steps for segment in step.segments]
    parts = decode_segments("closed windows", segments, stack.partials)
    rows = [sum(rows for rows, _ in step.segments) for step in steps]
    outputs = stack.run(steps[0].meaning, parts, np.repeat(np.arange(len(steps)), rows))
    return None if outputs is None else outputs[: len(steps)]


def _alone(step: LogStep) -> pa.Table | Exception:
    try:
        parts = decode_segments("closed windows", step.segments, schema_of(step.program))
        return merge_and_finish(step.program, step.meaning, [parts], step.pipeline.max_group_values)
    except Exception as problem:  # the pipeline's own failure must not stop the others
        return problem


def _ring1(pipeline: PipelineDef) -> Ring1Program:
    if pipeline.program.ring1 is None:
        raise InternalError(f"pipeline {pipeline.name} has lanes but no state")
    return pipeline.program.ring1
