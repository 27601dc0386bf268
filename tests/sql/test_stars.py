"""`*`, `s.*` and `pos.*` in a select list and as arguments: the same as the names of the columns."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError
from tests.sql.support import plan


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("SELECT to_json(struct(*)) FROM plain", "SELECT to_json(struct(a, b, c)) FROM plain"),
        ("SELECT hash(1, p.*) FROM plain p", "SELECT hash(1, p.a, p.b, p.c) FROM plain p"),
        ("SELECT struct(pos.*, id) AS r FROM s", "SELECT struct(pos.lat, pos.lon, id) AS r FROM s"),
        ("SELECT s.pos.* FROM s", "SELECT pos.lat, pos.lon FROM s"),
        ("SELECT xxhash64(* EXCEPT (b)) FROM plain", "SELECT xxhash64(a, c) FROM plain"),
        ("SELECT count(DISTINCT *) FROM plain", "SELECT count(DISTINCT a, b, c) FROM plain"),
        ("SELECT count(plain.*) FROM plain", "SELECT count(plain.a, plain.b, plain.c) FROM plain"),
        ("SELECT upper(attrs.x) AS u FROM s", "SELECT upper(attrs['x']) AS u FROM s"),
    ],
)
def test_a_star_stands_for_the_columns(short: str, long: str) -> None:
    given, wanted = plan(short).program, plan(long).program
    assert given.ring0 == wanted.ring0 and given.ring1 == wanted.ring1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM plain WHERE hash(*) > 0",
        "SELECT a, count(*) FROM plain GROUP BY a HAVING count(DISTINCT *) > 1",
    ],
)
def test_a_star_outside_of_the_select_list_goes_to_another_host(query: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        plan(query)
    assert caught.value.code == "UNSUPPORTED_ON_SHARED"
