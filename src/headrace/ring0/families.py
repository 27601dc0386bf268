"""Families: pipelines of one stream with the same window and keys fold a batch in one pass (see
docs/design/2026-11-16-founding.md).

A family exists only here, in one plan version's Ring 0; lanes and state stay per pipeline, so what a member sends does
not depend on who else is in the family.
"""

from __future__ import annotations

from headrace.model.program import Family, PlanVersion


def families(plan: PlanVersion) -> list[list[int]]:
    """The instances of each family of two or more, in the order of the pipelines."""
    found: dict[Family, list[int]] = {}
    for pipeline in plan.pipelines:
        key = pipeline.program.family
        if key is not None and pipeline.instance not in plan.alone:
            found.setdefault(key, []).append(pipeline.instance)
    return [members for members in found.values() if len(members) > 1]
