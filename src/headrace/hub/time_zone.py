"""The session time zone of a hub: the one asked for, or that of its pipelines, or UTC."""

from __future__ import annotations

from headrace.errors import BadOption
from headrace.exec.kernels.zones import known
from headrace.model.program import Meaning
from headrace.sql.functions.evaluate import knows_time_zone
from headrace.state.catalog import Catalog


def session_meaning(catalog: Catalog, time_zone: str | None) -> Meaning:
    """How the statements of a hub are planned. Raises BadOption for a text that is not a time zone."""
    if time_zone is None:
        records = catalog.pipelines.values()
        return next((r.definition.program.meaning for r in records), Meaning())
    if not (known(time_zone) and knows_time_zone(time_zone)):
        raise BadOption(
            f"there is no time zone {time_zone!r}",
            advice="Use the name of a region, such as Europe/Berlin, or UTC.",
            option="time_zone",
            value=time_zone,
        )
    return Meaning(time_zone=time_zone)
