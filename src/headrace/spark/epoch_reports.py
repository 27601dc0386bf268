"""What the tasks and lanes of one epoch have said, as the driver gets it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from headrace.bridge.messages import STREAM_LANE, Kind, Row, decode_json, decode_receipt
from headrace.control.signals import Barrier
from headrace.model.program import PipelineDef, PlanVersion
from headrace.sinks.base import Staged

Failures = dict[int, str]
Detached = dict[int, dict[str, str]]
Members = dict[int, PipelineDef]  # the instances that an epoch is about: those in its plan and those that leave in it


def members_of(plan: PlanVersion, leaving: list[int]) -> Members:
    """Who an epoch with this plan is about, when the instances in `leaving` end in it."""
    ended = {left.pipeline.instance: left.pipeline for left in plan.left if left.pipeline.instance in leaving}
    return ended | {p.instance: p for p in plan.pipelines}


@dataclass(slots=True)
class EpochReports:
    """The messages of an epoch, sorted by what they are: `reports` by task, `lanes` by instance and bucket.
    `heard` has the barriers of every instance's buckets, and of the stream's tasks under `STREAM_LANE`."""

    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    heard: dict[int, list[tuple[int, Barrier]]] = field(default_factory=lambda: defaultdict(list))
    lanes: dict[int, dict[int, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    receipts: dict[int, dict[str, list[Staged]]] = field(default_factory=lambda: defaultdict(dict))
    failures: Failures = field(default_factory=dict)
    lost: Detached = field(default_factory=lambda: defaultdict(dict))

    def add(self, row: Row) -> None:
        """Take one message; the first failure of an instance or a sink is the one that counts."""
        if row.kind == Kind.OUTPUT:
            instance, sink, staged = decode_receipt(row.payload)
            self.receipts[instance].setdefault(sink, []).append(staged)
            return
        value = decode_json(row.payload)
        if row.kind == Kind.ERROR and "sink" in value:
            self.lost[value["instance"]].setdefault(value["sink"], value["reason"])
        elif row.kind == Kind.ERROR:
            self.failures.setdefault(value["instance"], value["reason"])
        elif row.instance == STREAM_LANE:
            self.reports[value["task"]] = value
            self.heard[STREAM_LANE].append((value["task"], Barrier(*value["barrier"])))
        else:
            self.lanes[row.instance][row.bucket] = value
            self.heard[row.instance].append((row.bucket, Barrier(*value["barrier"])))
