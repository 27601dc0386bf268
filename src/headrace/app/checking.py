"""`headrace check`: what it prints, for people and for editors, and its exit code.

It needs neither typer nor its parser of values, which take a third of a second to import, so the usual forms of the
command come here directly (`quick_arguments`).
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.app.check import CheckedScript, check_script
from headrace.errors import HeadraceError, MissingFile, ScriptErrors, UnreadableFile


@dataclass(frozen=True, slots=True)
class CheckArguments:
    """`strict` makes missing paths errors. `as_json` prints one JSON object, `verbose` stack traces."""

    script: Path
    strict: bool = False
    as_json: bool = False
    verbose: bool = False


def quick_arguments(arguments: Sequence[str]) -> CheckArguments | None:
    """The arguments of `headrace check`, if they are one script and known flags. None for anything else.

    >>> quick_arguments(["app.sql", "--strict"])
    CheckArguments(script=PosixPath('app.sql'), strict=True, as_json=False, verbose=False)
    >>> quick_arguments(["--help"]) is quick_arguments([]) is None
    True
    """
    flags = {a for a in arguments if a.startswith("-") and a != "-"}
    scripts = [a for a in arguments if a not in flags]
    if len(scripts) != 1 or flags - {"--strict", "--json"}:
        return None
    return CheckArguments(Path(scripts[0]), "--strict" in flags, "--json" in flags)


def check_command(given: CheckArguments, state_dir: Path | None = None, time_zone: str | None = None) -> int:
    """Check a script, print the findings, and return the exit code: 0, or 2 if there are errors."""
    errors: tuple[HeadraceError, ...] = ()
    checked = CheckedScript(())
    try:
        checked = check_script(read_script(given.script), state_dir, time_zone, elsewhere=not given.strict)
    except HeadraceError as problem:
        errors = problem.errors if isinstance(problem, ScriptErrors) else (problem,)
        if given.verbose:
            traceback.print_exc()
    if given.as_json:
        print(json.dumps(_as_json(given.script, checked, errors), indent=2))
    elif errors:
        shown = errors[0] if len(errors) == 1 else ScriptErrors(f"{len(errors)} statements have errors", errors=errors)
        print(shown.render(), file=sys.stderr)
    else:
        for warning in checked.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        for away in checked.absent:
            where = f" (line {away.span.line})" if away.span is not None else ""
            print(f"warning: {away.message}{where}; --strict makes this an error", file=sys.stderr)
        print(f"{given.script}: {len(checked.statements)} statements, {len(checked.pipelines)} pipelines, no errors")
        if checked.unchecked:
            names = ", ".join(checked.unchecked)
            print(
                f"not checked, because only Spark knows their queries: {names}. Spark checks them when they are created"
            )
    return 2 if errors else 0


def _as_json(script: Path, checked: CheckedScript, errors: tuple[HeadraceError, ...]) -> dict[str, object]:
    warnings = [{"code": None, "message": text, "advice": "", "at": None} for text in checked.warnings]
    return {
        "script": str(script),
        "ok": not errors,
        "statements": len(checked.statements),
        "pipelines": [p.name for p in checked.pipelines],
        "unchecked": list(checked.unchecked),
        "errors": [_finding(e) for e in errors],
        "warnings": [*warnings, *(_finding(e) for e in checked.absent)],
    }


def _finding(problem: HeadraceError) -> dict[str, object]:
    """One error, with its range in the text: lines and columns from 1, the end is not part of it."""
    span, place = problem.span, None
    if span is not None:
        before = span.text[: span.end]
        place = {
            "statement": span.statement,
            "line": span.line,
            "column": span.column,
            "end_line": before.count("\n") + 1,
            "end_column": len(before) - (before.rfind("\n") + 1) + 1,
        }
    return {"code": problem.code, "message": problem.message, "advice": problem.advice, "at": place}


def read_script(script: Path) -> str:
    """The text of a script; - is standard input. Raises MissingFile and UnreadableFile."""
    if str(script) == "-":
        return sys.stdin.read().removeprefix("\ufeff")
    try:
        return script.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    except FileNotFoundError:
        raise MissingFile(
            f"there is no file {script}", advice="Give the path of a script of SQL statements.", path=str(script)
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise UnreadableFile(
            f"{script} cannot be read: {problem}",
            advice="A script must be a readable text file in UTF-8.",
            path=str(script),
        ) from None
