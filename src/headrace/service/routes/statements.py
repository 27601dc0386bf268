"""Routes that take SQL text: run, validate, explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter

from headrace.errors import BadRequest
from headrace.service import models
from headrace.service.routes.common import ERRORS, Limit, run

if TYPE_CHECKING:
    from headrace.hub.hub import Hub


class StatementRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def router(self) -> APIRouter:
        router = APIRouter(responses=ERRORS, tags=["sql"])
        add = router.add_api_route
        add("/sql", self.sql, methods=["POST"], summary="Run a script")
        add("/validate", self.validate, methods=["POST"], summary="Plan a script without running it")
        add("/explain", self.explain, methods=["POST"], summary="EXPLAIN a query or CREATE PIPELINE")
        return router

    def sql(self, script: models.Sql, limit: Limit = 1000, arrow: bool = False) -> models.ScriptResult:
        """All statements of the script take effect, or none. Returns one result per statement, with `arrow` as Arrow
        streams, which keep the types."""
        return run(self._hub, script.text, limit, arrow=arrow)

    def validate(self, script: models.Sql) -> models.ScriptCheck:
        """Answers 400 with the first error if the script would not run."""
        return models.ScriptCheck(statements=len(self._hub.check(script.text)))

    def explain(self, script: models.Sql, mode: Literal["plain", "verbose", "json"] = "plain") -> models.PlanText:
        """The plan, and how adding it would change the running stream."""
        keyword = "" if mode == "plain" else f"{mode.upper()} "
        results = self._hub.check(f"EXPLAIN {keyword}{script.text}")
        if len(results) != 1:
            raise BadRequest("this address explains exactly one statement", advice="Send one query or CREATE PIPELINE.")
        return models.PlanText(text=results[0].text)
