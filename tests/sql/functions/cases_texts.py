"""Literals and further cases for strings, regular expressions, hashes, JSON and URLs."""

from __future__ import annotations

from collections.abc import Iterator


def _java(*patterns: str) -> list[tuple[str, ...]]:
    """Patterns as literals of Spark SQL, which reads backslashes as escapes."""
    return [(_quoted(p),) for p in patterns]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\t", "\\t") + "'"


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
    "sha2": [("256",), ("0",), ("224",), ("384",), ("512",), ("5",), ("NULL",)],
    "like(STRING, STRING)": [*_java("a%", "%b\\_c%", "_", "", "%", "h_llo%", "ABC"), ("NULL",)],
    "like(STRING, STRING, STRING)": [("'a/%%'", "'/'"), ("'%b!_c%'", "'!'")],
    "ilike(STRING, STRING)": [*_java("A%", "_", "ABC", "HÉLLO%", "ß"), ("NULL",)],
    "ilike(STRING, STRING, STRING)": [("'A/%%'", "'/'"), ("'%B!_c%'", "'!'")],
    "substring_index": [("'a'",), ("'.'",), ("''",), ("'bc'",), ("NULL",)],
    "mask(STRING, STRING)": [("'Q'",), ("NULL",), ("'é'",)],
    "mask(STRING, STRING, STRING)": [("'x'", "'X'"), ("NULL", "'y'")],
    "mask(STRING, STRING, STRING, STRING)": [("'x'", "'X'", "'9'"), ("NULL", "NULL", "NULL")],
    "mask(STRING, STRING, STRING, STRING, STRING)": [("'x'", "'X'", "'9'", "'*'"), ("NULL", "NULL", "NULL", "'日'")],
    "levenshtein(STRING, STRING, INT)": [("2",), ("0",), ("-1",)],
    "encode": [
        *((f"'{c}'",) for c in ("UTF-8", "US-ASCII", "iso-8859-1", "UTF-16BE", "UTF-16LE", "UTF-16", "UTF-32")),
        ("NULL",),
    ],
    "decode": [*((f"'{c}'",) for c in ("UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16BE", "UTF-16LE")), ("NULL",)],
    "to_binary": [("'hex'",), ("'UTF-8'",), ("NULL",)],
    "try_to_binary": [("'HEX'",), ("'utf8'",), ("NULL",)],
    "parse_url(STRING, STRING, STRING)": [("'QUERY'", "'q'"), ("'QUERY'", "NULL")],
    "try_parse_url(STRING, STRING, STRING)": [("'QUERY'", "'q'")],
    "format_number": [("0",), ("2",), ("-1",), ("12",), ("NULL",)],
}

_ANY = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,0)", "STRING",
    "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRUCT<x: INT, y: STRING>",
)  # fmt: skip
_CASED = "'Σ', 'ΑΣ', 'ΑΣ Σ', 'İI', 'ŉ ﬁx', 'ΐ', 'ǆa ǅ', 'ꟋⱯ', 'ɷ', '𐵐x', '𝽀', 'ÀÉ ÿ'"


_JSON = (
    '{"a": 1.50, "b":"x"}', '{"a":1e3}', r'{"a":"x\ty\u00e9/"}', '{"a":null,"a":2}', '{"a":[1,2,{"b":3}]}',
    '{"a":{"b":[1,"2"]}}', "[1,2]", '[{"a":1},{"a":2}]', "", "nope", '{"a":1', '{"a":1}x', "{'a':'it\"s'}",
    '{"a":1,"a":2}', '"str"', "12", '{"a.b":1, "a b":2}', ' {"a" : "é日😀" } ', '{"a":-0}',
    '{"a":12345678901234567890}', '{"a":0.1e-7}', '{"a":NaN}', '{"a":01}', r'{"a":"\u0001\"\\"}',
    "[[1,2],[3]]", "null", '{"a":[["x","y"],["z"]]}', '{"a":[null,1]}', '{"a":1e400}', '{"a":1,}',
    r'{"a":"\ud83d"}', '{"a":"tab\there"}', '["x"]', "[]", '{"a":123456789.25}', '{"a":true}',
)  # fmt: skip
_PATHS = (
    "$.a", "$", "$.a.b", "$.a[0]", "$[0]", "$.a[*]", "$[*].a", "$['a']", "$.a[*].b", "$.*", "a", "$.a b", "$['a.b']",
    "$[*]", "$.a[*][0]", "$.a[0][*]", "$[*][*]", "$..a", "$.a[-1]",
)  # fmt: skip
_URLS = (
    "http://user:pw@host.com:8080/p/a.html?q=1&r=a%20b#frag", "https://h", "http://h/p?", "http://h?q", "/rel/path?q=1",
    "mailto:a@b.c", "http://é.com/ü", "http://h/a b", "", "http://[::1]:80/x", "http://h:port/x", "HTTP://H/P", "//h/p",
    "http://", "http:///p", "http://h/p?a=b=c&=d&q=e", "http://u@h", "http://h/%zz", "http://h_x/", "http://1.2.3.4/",
    "http://1.2.3", "http://h:/", "http://h:99999999999/", "http://[::g]/", "http://h/p?q=[1]", "1http://h", "://h",
    "http:p", "http://h/p;x=1?q#r#s", "http://h/\u00a0", "http://-h/", "a/b:c", "http://h?xq=5&q=7",
)  # fmt: skip
_ENCODED = (
    "a+b",
    "%20",
    "%",
    "%zz",
    "%C3%A9",
    "%FF",
    "a%C3",
    "%ED%A0%80",
    "%+1",
    "%-1",
    "*-_.~",
    "日😀!'()",
    "a/b?c&d",
)


def _two(texts: tuple[str, ...]) -> Iterator[str]:
    """Two texts at a time, as an expression over a BOOLEAN column."""
    for first, second in zip(texts[::2], [*texts[1::2], texts[0]], strict=False):
        yield f"CASE WHEN a THEN {_quoted(first)} WHEN NOT a THEN {_quoted(second)} END"


def _json_cases() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for text in _two(_JSON):
        for path in _PATHS:
            yield "get_json_object(STRING, STRING)", ("BOOLEAN",), f"get_json_object({text}, {_quoted(path)})"
        yield "json_array_length(STRING)", ("BOOLEAN",), f"json_array_length({text})"
        yield "json_object_keys(STRING)", ("BOOLEAN",), f"json_object_keys({text})"
    yield "get_json_object(STRING, STRING)", ("STRING",), """get_json_object(concat('{"a":', a, '}'), '$.a')"""
    yield "get_json_object(STRING, STRING)", ("STRING",), """get_json_object(concat('[{"a":"', a, '"}]'), '$[*].a')"""


def _url_cases() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for text in _two(_URLS):
        for part in ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO", "host"):
            yield "try_parse_url(STRING, STRING)", ("BOOLEAN",), f"try_parse_url({text}, '{part}')"
        yield "parse_url(STRING, STRING)", ("BOOLEAN",), f"parse_url({text}, 'HOST')"
        yield "parse_url(STRING, STRING, STRING)", ("BOOLEAN",), f"parse_url({text}, 'QUERY', 'q')"
        yield "try_parse_url(STRING, STRING, STRING)", ("BOOLEAN",), f"try_parse_url({text}, 'QUERY', 'a')"
    for text in _two(_ENCODED):
        for name in ("url_encode", "url_decode", "try_url_decode"):
            yield f"{name}(STRING)", ("BOOLEAN",), f"{name}({text})"


_WHOLE_FORMATS = ("%d", "%12d|", "%-12d|", "%012d", "%,d", "%+d", "% d", "%+,20d", "%x", "%X", "%016x", "%-9X|", "%s")
_FORMATS = {
    "STRING": ("%s", "<%10s>", "<%-10s>", "%s %%%n", "none"),
    "BOOLEAN": ("%s", "%7s"),
    "TINYINT": _WHOLE_FORMATS,
    "SMALLINT": _WHOLE_FORMATS,
    "INT": _WHOLE_FORMATS,
    "BIGINT": _WHOLE_FORMATS,
    "DECIMAL(10,2)": ("%s", "%12s"),
    "FLOAT": ("%f", "%.2f"),
    "DOUBLE": ("%f", "%.2f", "%.0f", "%010.2f", "%+.1f", "% .1f", "%,.2f", "%-12.3f|", "%12.3f", "%,020.1f", "%.20f"),
}


# Forms with words between the arguments.
_WORDED = (
    ("trim(STRING, STRING)", "trim(BOTH 'a' FROM a)"),
    ("trim(STRING, STRING)", "trim('a' FROM a)"),
    ("ltrim(STRING)", "trim(LEADING FROM a)"),
    ("ltrim(STRING, STRING)", "trim(LEADING 'ab' FROM a)"),
    ("rtrim(STRING, STRING)", "trim(TRAILING 'c' FROM a)"),
    ("locate(STRING, STRING)", "position('b' IN a)"),
    ("overlay(STRING, STRING, INT)", "overlay(a PLACING 'x' FROM 2)"),
    ("overlay(STRING, STRING, INT, INT)", "overlay(a PLACING 'x' FROM 2 FOR 3)"),
    ("substring(STRING, INT, INT)", "substring(a FROM 2 FOR 2)"),
    ("like(STRING, STRING)", "a LIKE ANY ('a%', '%b')"),
    ("like(STRING, STRING)", "a NOT LIKE ALL ('a%', '%b')"),
    ("like(STRING, STRING)", "a LIKE ALL ('a%', NULL)"),
    ("ilike(STRING, STRING)", "a NOT ILIKE ANY ('A%', '_')"),
)


def _cases() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for name in ("hash", "xxhash64"):
        for kind in _ANY:
            yield f"{name}(ANY...)", (kind,), f"{name}(a)"
        yield f"{name}(ANY...)", ("STRING", "BIGINT"), f"{name}(a, b, NULL, a, 1.5D, X'0102030405')"
        for width in (1, 3, 4, 7, 8, 9, 31, 32, 33, 40, 63, 64, 65):
            yield f"{name}(ANY...)", ("STRING",), f"{name}(left(repeat(concat(a, 'xyzé'), 40), {width}))"
    for name in ("lower", "upper", "initcap", "mask"):
        for text in _CASED.split(", "):
            yield f"{name}(STRING)", ("STRING",), f"{name}(concat(a, {text}))"
    for key in ("substring_index(STRING, STRING, INT)", "split_part(STRING, STRING, INT)"):
        for count in (-2147483648, -2, -1, 1, 2):
            yield key, ("STRING",), f"{key.partition('(')[0]}(a, 'b', {count})"
    for place in (-1, 0, 1, 2, 9):
        yield "locate(STRING, STRING, INT)", ("STRING",), f"locate('b', a, {place})"
        yield "overlay(STRING, STRING, INT)", ("STRING",), f"overlay(a, 'xyz', {place})"
        yield "overlay(STRING, STRING, INT, INT)", ("STRING",), f"overlay(a, 'é', {place}, {place})"
    yield "find_in_set(STRING, STRING)", ("STRING",), "find_in_set(a, 'a,ABC,,é,12')"
    yield "elt(INT, STRING...)", ("SMALL INT",), "elt(a, 'x', 'y', NULL)"
    yield "chr(BIGINT)", ("BIGINT",), "chr(a)"
    for number in (0, 65, 127, 128, 255, 256, -1):
        yield "chr(BIGINT)", ("SMALL BIGINT",), f"chr({number} + a - a)"
    for other in ("", "abc", "hello", "日本", "xéx"):
        yield "levenshtein(STRING, STRING)", ("STRING",), f"levenshtein(left(a, 30), '{other}')"
        yield "levenshtein(STRING, STRING, INT)", ("STRING",), f"levenshtein(left(a, 30), '{other}', 2)"
    for word in ("Robert", "Ashcraft", "Tymczak", "Pfister", "ab-c", "aé b", "Jackson", "Lloyd", "whw"):
        yield "soundex(STRING)", ("STRING",), f"soundex(concat('{word}', a))"
    for digits in ("79927398713", "79927398714", "0", "٣", "١٨", "1٨", "𝟏𝟖", "²0"):
        yield "luhn_check(STRING)", ("STRING",), f"luhn_check(concat('{digits}', a))"
    for key, text in _WORDED:
        yield key, ("STRING",), text
    for number in (-2147483648, -4, -2, -1, 0, 1, 2, 9, 2147483647):
        yield "substring(BINARY, INT)", ("BINARY",), f"substring(a, {number})"
        yield "substring(BINARY, INT, INT)", ("BINARY",), f"substring(a, {number}, 2)"
        yield "left(BINARY, INT)", ("BINARY",), f"left(a, {number})"
    for size in (56, 57, 58, 114, 115):
        yield "base64(STRING)", ("STRING",), f"base64(left(repeat(a, 60), {size}))"
    for text in ("Y", "YQ", "YQ=", "YQ==", "YQ==YQ==", "Y Q==", "Y$Q=", "=", "YWJj", "YWJjZA==", "é", "YW=j", "YWJj="):
        yield "unbase64(STRING)", ("BOOLEAN",), f"unbase64(CASE WHEN a THEN '{text}' END)"
    for text in ("4", "4G", "0x41", "abcdef", "ABC"):
        for name in ("unhex", "to_binary", "try_to_binary"):
            yield f"{name}(STRING)", ("BOOLEAN",), f"{name}(CASE WHEN a THEN '{text}' END)"
    for kind, forms in _FORMATS.items():
        for form in forms:
            yield "format_string(STRING, ANY...)", (kind,), f"format_string('{form}', a)"
    yield "format_string(STRING, ANY...)", ("STRING", "INT"), "format_string('%2$d: %1$s %s%%', a, b)"
    yield "format_string(STRING, ANY...)", ("INT",), "format_string('%5s|%-6s|%d', NULL, NULL, a)"
    yield from _json_cases()
    yield from _url_cases()


# The entry, the types of the columns a, b, ..., and the expression.
CASES: list[tuple[str, tuple[str, ...], str]] = list(_cases())
