"""`*`, `s.*` and `pos.*` in a select list and as arguments: the same as the names of the columns."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, SqlError
from headrace.sql.hosts.host_choice import is_resolvable
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
        ("SELECT count(plain.*, a) FROM plain", "SELECT count(plain.a, plain.b, plain.c, a) FROM plain"),
        ("SELECT count(pos.*) AS n FROM s", "SELECT count(pos.lat, pos.lon) AS n FROM s"),
        ("SELECT upper(attrs.x) AS u FROM s", "SELECT upper(attrs['x']) AS u FROM s"),
    ],
)
def test_a_star_stands_for_the_columns(short: str, long: str) -> None:
    given, wanted = plan(short).program, plan(long).program
    assert given.ring0 == wanted.ring0 and given.ring1 == wanted.ring1


def test_a_star_in_where_goes_to_another_host() -> None:
    with pytest.raises(HeadraceError) as caught:
        plan("SELECT a FROM plain WHERE hash(*) > 0")
    assert caught.value.code == "UNSUPPORTED_ON_SHARED"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, count(*) FROM plain GROUP BY a HAVING count(DISTINCT *) > 1",
        "SELECT id FROM s GROUP BY id HAVING count(pos.*) > 1",
        "SELECT count(plain.*) FROM plain",
        "SELECT count(p.*) FILTER (WHERE a > 1) FROM plain p",
    ],
)
def test_a_star_that_spark_refuses_is_refused_on_all_hosts(query: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        plan(query)
    assert isinstance(caught.value, SqlError)
    assert (caught.value.code, is_resolvable(caught.value)) == ("WRONG_ARGUMENTS", False)
