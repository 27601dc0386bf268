"""Literals and further cases for strings, regular expressions, hashes, JSON and URLs."""

from __future__ import annotations


def _java(*patterns: str) -> list[tuple[str, ...]]:
    """Patterns as literals of Spark SQL, which reads backslashes as escapes."""
    return [(_quoted(p),) for p in patterns]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _with(patterns: list[tuple[str, ...]], *more: str) -> list[tuple[str, ...]]:
    return [(*p, *more) for p in patterns]


# The empty text, look-around, back references and possessive quantifiers do not run in RE2.
_PATTERNS = _java(
    "^a", "b.c", "[0-9]+", "(abc)+$", "x{3}", "2$", r"^\d+$", "a.b", "é|ö", r"[\w-.]+", r"\s+", r"\S+", r"\bb", r"\Bb",
    "(?i)ABC", "(?i)[^A-B]", "(?=b)b", "(?<=a)b", "(?<!a)b", "a++", r"(a)\1", "[a-z&&[^bc]]", "(?m)^b$", r"a\Z", r"\n",
    r"\p{L}+", r"\P{Lu}", r"[\s\d]+", r"\W", r"\Qa.b\E", r"\x61", "[a-]", "(?>a|ab)c", "(?<n>a)b", "(ab|a)(bc)?",
)  # fmt: skip
_GROUPS = [*_java("([a-z]+)([0-9]+)", "b(.)", "(x)|(a)", r"(\w)(\d)?", "(a)$", "(?<!x)(b)"), ("NULL",)]

CONSTANTS: dict[str, list[tuple[str, ...]]] = {
    "rlike": [*_PATTERNS, *_java("", "a*", "(?m)^", "$"), ("NULL",)],
    "regexp_count": _PATTERNS[:20],
    "regexp_substr": [*_PATTERNS[:20], *_java("a*")],
    "regexp_instr(STRING, STRING)": _PATTERNS[:12],
    "regexp_instr(STRING, STRING, INT)": [*_with(_java("b"), "0"), *_with(_java("b"), "NULL")],
    "regexp_extract(STRING, STRING)": _GROUPS,
    "regexp_extract(STRING, STRING, INT)": [*_with(_GROUPS, "0"), *_with(_GROUPS, "1"), *_with(_java("a$"), "0")],
    "regexp_extract_all(STRING, STRING)": _GROUPS,
    "regexp_extract_all(STRING, STRING, INT)": [*_with(_GROUPS, "0"), *_with(_java("(a)(b)?"), "2")],
    "regexp_replace(STRING, STRING, STRING)": [
        *_with(_PATTERNS[:24], "'#'"),
        *_with(_java(r"(\w)(\d)?"), "'$2-$1'"),
        *_with(_java("c"), r"'\\$1'"),
        *_with(_java("b"), "''"),
        *_with(_java("b"), "NULL"),
        *_with(_java(r"\s+$", "a$"), "'$0!'"),
    ],
    "regexp_replace(STRING, STRING, STRING, INT)": [*_with(_java("b", "(?<=a)b", "^a"), "'#'", "2")],
    "split(STRING, STRING)": [*_java(",", "[abc]", "", "(?=b)", r"\s+", "b+"), ("NULL",)],
    "split(STRING, STRING, INT)": [
        *_with(_java("b", "", "[ac]"), "2"),
        *_with(_java("b"), "0"),
        *_with(_java(""), "1"),
    ],
    "sha2": [("256",), ("0",)],
}

# The entry, the types of the columns a, b, ..., and the expression.
CASES: list[tuple[str, tuple[str, ...], str]] = []
