"""Spark's answers about random expressions, kept in a file: a second run over the same expressions needs no Spark.

An answer is found by the version of Spark, the seed of the rows, the time zone, the question and the expression. So a
repaired function is compared with all earlier expressions in the time that our own side takes.
"""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark

from tests.sql.functions.harness import Outcome, Spark


class KeptAnswers:
    """A file of answers. The caller deletes it to ask Spark again."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path)
        self._file.execute("CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, answer BLOB)")

    def get(self, question: str) -> Any:
        """The answer, or None."""
        row = self._file.execute("SELECT answer FROM answers WHERE question = ?", (question,)).fetchone()
        return None if row is None else pickle.loads(row[0])

    def put(self, found: dict[str, Any]) -> None:
        """Keeps answers."""
        rows = [(question, pickle.dumps(answer)) for question, answer in found.items()]
        with self._file:
            self._file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class RememberingSpark:
    """Answers like `Spark`, from the file where it can. `start` makes the Spark of this frame, at the first question
    that the file does not answer."""

    def __init__(self, answers: KeptAnswers, start: Callable[[], Spark], frame: str) -> None:
        self._answers, self._start, self._frame = answers, start, frame
        self._spark: Spark | None = None

    @property
    def _started(self) -> Spark:
        if self._spark is None:
            self._spark = self._start()
        return self._spark

    def _question(self, about: str, text: str) -> str:
        return f"{pyspark.__version__} {self._frame} {about} {text}"

    def evaluate(self, texts: list[str]) -> list[Outcome | str]:
        """For each expression every row's value, or why Spark refuses it."""
        found = {text: self._answers.get(self._question("value", text)) for text in texts}
        missing = [text for text, answer in found.items() if answer is None]
        if missing:
            new = dict(zip(missing, self._started.evaluate(missing), strict=True))
            self._answers.put({self._question("value", text): answer for text, answer in new.items()})
            found.update(new)
        return [found[text] for text in texts]

    def by_row(self, text: str) -> Outcome:
        """Row by row."""
        found: Outcome = self._one("row", text, lambda spark: spark.by_row(text))
        return found

    def folded(self, text: str) -> Outcome | str:
        """With Spark's constants computed first."""
        found: Outcome | str = self._one("folded", text, lambda spark: spark.folded(text))
        return found

    def may_be_null(self, text: str) -> bool:
        """True if Spark believes that an expression may be NULL, or refuses it."""
        found: bool = self._one("null when simplified", text, lambda spark: spark.may_be_null(text))
        return found

    def _one(self, about: str, text: str, ask: Callable[[Spark], Any]) -> Any:
        question = self._question(about, text)
        found = self._answers.get(question)
        if found is None:
            found = ask(self._started)
            self._answers.put({question: found})
        return found

    def close(self) -> None:
        """Releases the rows, if there are any."""
        if self._spark is not None:
            self._spark.close()
