"""Scripts: statements that semicolons separate. Reports the errors of all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import HeadraceError, ScriptErrors, Span, SyntaxProblem
from headrace.sql.parse.create_statements import KINDS
from headrace.sql.parse.dialect import Token, tokenize
from headrace.sql.parse.statement_parser import options_at_end, parse_tokens
from headrace.sql.parse.statements import Select, Statement


@dataclass(frozen=True, slots=True)
class ParsedScript:
    """The statements of a script that could be parsed, the errors of the others, and the names, in lower case, that the
    others would have declared."""

    statements: tuple[Statement, ...]
    errors: tuple[HeadraceError, ...]
    undeclared: frozenset[str]


def parse_script(text: str) -> tuple[Statement, ...]:
    """The statements of `text`. Raises the only error, or ScriptErrors with all of them."""
    parsed = parse_each(text)
    raise_all(list(parsed.errors))
    return parsed.statements


def parse_each(text: str) -> ParsedScript:
    """Parses statement by statement: one with an error does not hide the others. Raises an error of the tokens, which
    belongs to no statement."""
    statements: list[Statement] = []
    errors: list[HeadraceError] = []
    undeclared: set[str] = set()
    for number, tokens in enumerate(_split(tokenize(text)), start=1):
        try:
            statements.append(parse_tokens(text, tokens, number))
            continue
        except HeadraceError as problem:
            errors.append(problem)
        except RecursionError:
            errors.append(too_deep(Span(text, tokens[0].start, tokens[-1].start, number)))
        undeclared |= _names_declared(tokens)
    return ParsedScript(tuple(statements), tuple(errors), frozenset(undeclared))


def _names_declared(tokens: list[Token]) -> set[str]:
    """The names after CREATE STREAM, SINK and the like, of a statement that is wrong somewhere. There are several if
    it is several statements without a semicolon between them."""
    creates = (i for i, token in enumerate(tokens) if token.upper == "CREATE")
    return {name for i in creates for name in _name_declared(tokens[i : i + 8])}


def _name_declared(tokens: list[Token]) -> set[str]:
    words = [token.upper for token in tokens]
    kind = next((i for i, word in enumerate(words) if word in KINDS), None)
    if kind is None:
        return set()
    name = kind + 4 if words[kind + 1 : kind + 4] == ["IF", "NOT", "EXISTS"] else kind + 1
    return {tokens[name].text.lower()} if name < len(tokens) else set()


def parse_statement(text: str, number: int) -> Statement:
    """The one statement that `text` is, without a semicolon."""
    (tokens,) = _split(tokenize(text))
    return parse_tokens(text, tokens, number)


def too_deep(span: Span) -> SyntaxProblem:
    """The error for a statement that is nested too deeply to parse or plan."""
    advice = "Use IN (...) instead of many ORs, and WITH instead of nested subqueries."
    return SyntaxProblem("the statement is nested too deeply", advice=advice, span=span)


def raise_all(errors: list[HeadraceError]) -> None:
    """Raises the only error, or all of them as ScriptErrors. Does nothing without errors."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ScriptErrors(f"{len(errors)} statements have errors", errors=tuple(errors))


def _split(tokens: list[Token]) -> list[list[Token]]:
    """Splits the tokens at semicolons, and drops empty statements. Each part ends with an end token."""
    pieces: list[list[Token]] = []
    piece: list[Token] = []
    for token in tokens:
        if token.kind == "end" or token.upper == ";":
            if piece:
                pieces.append([*piece, Token("end", "", piece[-1].end, piece[-1].end)])
            piece = []
        else:
            piece.append(token)
    return pieces


def cut_limit(statement: Select) -> tuple[Select, int | None]:
    """A SELECT without its LIMIT and its options, and the limit. Positions stay those of the script, whose
    whole lines errors show."""
    text, span = statement.span.text, statement.span
    tokens = [t for t in tokenize(text) if t.kind != "end" and span.start <= t.start < span.end]
    begin = options_at_end([*tokens, Token("end", "", 0, 0)])
    tokens = tokens if begin is None else tokens[:begin]
    if len(tokens) < 3 or tokens[-2].upper != "LIMIT" or not tokens[-1].text.isdigit():
        return statement, None
    last = tokens[-3].end
    cut = parse_tokens(text, [*tokens[:-2], Token("end", "", last, last)], span.statement or 1)
    assert isinstance(cut, Select)
    return cut, int(tokens[-1].text)
