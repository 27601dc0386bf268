"""Cases for base 32, keyed digests, similarity, vectors and maps that are zipped."""

from __future__ import annotations

from collections.abc import Iterator

_V = "ARRAY<FLOAT>"
_NEAR = 2**30  # the last digits of a FLOAT, in units of the last digit of a DOUBLE
_VECTORS = ("array(3F, -4F)", "array(0F, 0F)", "array(1.5F, float(NULL))", "array(0.1F, 0.2F)", "array(1e-3F, 1e3F)")


def _cases() -> Iterator[tuple[str, tuple[str, ...], str, int]]:
    for kind in ("BINARY", "STRING"):
        yield f"hmac({kind}, {kind})", (kind, kind), "hmac(a, b)", 0
        for name in ("sha-1", "MD5", "SHA-224", "SHA-256", "SHA-384", "SHA-512"):
            yield f"hmac({kind}, {kind}, STRING)", (kind, kind), f"hmac(a, b, '{name}')", 0
    for text in ("MZXW6YTBOI======", "MZXW6YTB=OI", "mzxw6", "1", "MZ XW", "éMZ", "M", "MZX", "iAcCyNx5K"):
        yield "from_base32(STRING)", ("BOOLEAN",), f"from_base32(CASE WHEN a THEN '{text}' END)", 0
    for word in ("MARTHA", "MARHTA", "sitting", "", "日本語", "abcdxxxx", "😀x"):
        yield "jaro_winkler_similarity(STRING, STRING)", ("STRING",), f"jaro_winkler_similarity(a, '{word}')", 2
    odd = "CASE WHEN a THEN '4.22.0.............................' END"  # three characters are out of place
    yield "jaro_winkler_similarity(STRING, STRING)", ("BOOLEAN",), f"jaro_winkler_similarity({odd}, '2024')", 2
    for name in ("to_char", "to_varchar"):
        for form in ("hex", "base64", "UTF-8"):
            yield f"{name}(BINARY, STRING)", ("SMALL BINARY",), f"{name}(a, '{form}')", 0
        for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
            yield "date_format(TIMESTAMP, STRING)", (kind,), f"{name}(a, 'yyyy-MM-dd HH:mm')", 0
    yield from _vectors()
    for keys in ("INT", "STRING"):
        for form in ("concat(coalesce(x, '-'), coalesce(y, '+'), k)", "x = y", "k"):
            kind = f"MAP<{keys}, STRING>"
            yield "map_zip_with(MAP, MAP, LAMBDA)", (kind, kind), f"map_zip_with(a, b, (k, x, y) -> {form})", 0


def _vectors() -> Iterator[tuple[str, tuple[str, ...], str, int]]:
    for name in ("vector_inner_product", "vector_l2_distance", "vector_cosine_similarity"):
        for vector in _VECTORS:
            for other in _VECTORS:
                text = f"{name}(CASE WHEN a THEN {vector} END, {other})"
                yield f"{name}(ARRAY, ARRAY)", ("BOOLEAN",), text, _NEAR
        yield f"{name}(ARRAY, ARRAY)", (_V,), f"{name}(slice(a, 1, 1), array(2F))", _NEAR
    for name in ("vector_norm", "vector_normalize"):
        for vector in _VECTORS:
            yield f"{name}(ARRAY)", ("BOOLEAN",), f"{name}(CASE WHEN a THEN {vector} END)", _NEAR
            for degree in ("1F", "2F"):
                text = f"{name}(CASE WHEN a THEN {vector} END, {degree})"
                yield f"{name}(ARRAY, FLOAT)", ("BOOLEAN",), text, _NEAR
        yield f"{name}(ARRAY)", (_V,), f"{name}(filter(a, x -> x > 0))", _NEAR


# The entry, the types of the columns a, b, ..., the expression, and the last digits that may differ.
CASES: list[tuple[str, tuple[str, ...], str, int]] = list(_cases())
