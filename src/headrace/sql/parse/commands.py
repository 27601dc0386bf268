"""Commands of Spark SQL. A hub runs queries over streams, and none of these."""

from __future__ import annotations

from headrace.errors import SyntaxProblem
from headrace.sql.parse.cursor import Cursor

COMMANDS = frozenset(
    ["INSERT", "MERGE", "UPDATE", "DELETE", "TRUNCATE", "SET", "RESET", "USE", "CACHE", "UNCACHE", "REFRESH", "ANALYZE",
     "ADD", "DECLARE", "MSCK", "LOAD", "CALL", "EXECUTE", "GRANT", "REVOKE", "BEGIN", "COMMENT", "REPAIR", "OPTIMIZE",
     "VACUUM"]
)  # fmt: skip


def refuse_command(cursor: Cursor) -> None:
    """Raises SyntaxProblem if a command stands where a statement or a query begins."""
    token = cursor.token
    if token.kind == "word" and token.upper in COMMANDS:
        raise SyntaxProblem(
            f"{token.upper} is a command of Spark, and a hub runs only queries over streams",
            advice="Run it on the session: hub.spark.sql('...'). The rows of a pipeline go to the sinks after INTO.",
            span=cursor.span((token.start, token.end)),
            certain=True,
        )
