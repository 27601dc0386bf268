"""Families: pipelines of one plan version with the same window and keys share one aggregation pass in Ring 0.

This is the definition that decides what runs. A family exists only in Ring 0. Lanes and state stay per pipeline, so the
messages of a member do not depend on the other members. Why: docs/design/2026-11-16-founding.md.
"""

from __future__ import annotations

from headrace.model.program import Family, PlanVersion


def families(plan: PlanVersion) -> list[list[int]]:
    """The instances of each family with at least two members, in the order of the pipelines."""
    found: dict[Family, list[int]] = {}
    for pipeline in plan.pipelines:
        key = pipeline.program.family
        if key is not None and pipeline.instance not in plan.alone:
            found.setdefault(key, []).append(pipeline.instance)
    return [members for members in found.values() if len(members) > 1]
