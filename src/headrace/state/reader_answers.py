"""The hub's answers to readers of user code, in files that the planning processes of Spark poll.

readers/<id>.json       where the feed of a reader is, or why there is none
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from headrace.base.durable import private_directory
from headrace.model.stored import store, stored

ANSWERS = "readers"


@dataclass(frozen=True, slots=True)
class ReaderAnswer:
    """`directory` is the feed of a reader. With a `problem` there is none."""

    directory: str
    problem: str = ""


def answer_of(answers: Path, reader: str) -> ReaderAnswer | None:
    """The hub's answer to a reader. None while there is none."""
    return stored(ReaderAnswer, answers / f"{reader}.json")


def give_answer(answers: Path, reader: str, answer: ReaderAnswer) -> None:
    """Answer a reader."""
    private_directory(answers)
    store(answers / f"{reader}.json", answer)


def forget_answer(answers: Path, reader: str) -> None:
    """Delete an answer: the reader has ended."""
    (answers / f"{reader}.json").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other readers have answers
        answers.rmdir()
