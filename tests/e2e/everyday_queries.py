"""What Spark users write every day, over a stream of orders with nested columns and a stream of payments, by the host
that runs it without being asked to."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

ORDERS = (
    "id BIGINT, user STRING, amount DECIMAL(10,2), price DOUBLE, qty INT, items STRING, tags ARRAY<STRING>, "
    "props MAP<STRING, STRING>, addr STRUCT<city: STRING, zip: STRUCT<code: STRING, area: INT>>, day DATE, at TIMESTAMP"
)
PAYMENTS = "pid BIGINT, order_id BIGINT, method STRING, paid DOUBLE, pat TIMESTAMP"
COUNT = 160
_BEGIN = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
_ITEMS = "from_json(items, 'ARRAY<STRUCT<sku STRING, qty INT, w DOUBLE>>')"
_PAID = (
    "FROM orders o {kind} JOIN payments p ON o.id = p.order_id "
    "AND p.pat BETWEEN o.at - INTERVAL 10 SECONDS AND o.at + INTERVAL 1 MINUTE"
)

SHARED = {
    "star": "SELECT * FROM orders WHERE amount > 10",
    "star_except": "SELECT * EXCEPT (items, props) FROM orders",
    "struct_star": "SELECT id, addr.* FROM orders",
    "parts": "SELECT id, addr.zip.code AS c, props['c'] AS p, tags[0] AS t, element_at(tags, -1) AS l FROM orders "
    "WHERE size(tags) > 0",
    "lateral_alias": "SELECT id, price * qty AS total, total * 1.19 AS gross FROM orders WHERE qty > 0",
    "choices": "SELECT id, CASE user WHEN 'ann' THEN 1 ELSE 0 END AS c, if(qty > 1, 'many', 'few') AS q, "
    "nvl(user, '?') AS u, coalesce(price, 0) AS p FROM orders",
    "times": "SELECT id, date_format(at, 'yyyy-MM-dd HH:mm:ss.SSS') AS f, date_trunc('HOUR', at) AS h, "
    "datediff(day, DATE'2026-01-01') AS n, unix_timestamp(at) AS u, extract(MINUTE FROM at) AS m, "
    "dateadd(MINUTE, 5, at) AS p FROM orders",
    "texts": "SELECT id, concat_ws('-', user, id) AS a, lpad(CAST(id AS STRING), 5, '0') AS b, "
    "regexp_replace(items, '[0-9]+', '#') AS c, user LIKE '%n%' AS d, user RLIKE '^[a-z]+$' AS e, "
    "user ILIKE ANY ('A%', 'b%') AS f FROM orders",
    "explode_map": "SELECT id, explode(props) FROM orders",
    "explode_outer": "SELECT id, explode_outer(tags) AS tag FROM orders",
    "json_items": f"SELECT id, i.sku, i.qty FROM orders LATERAL VIEW explode({_ITEMS}) t AS i WHERE i.qty > 0",
    "json_inline": f"SELECT id, inline({_ITEMS}) FROM orders",
    "lambdas": "SELECT id, transform(tags, t -> upper(t)) AS a, filter(tags, t -> t <> 'x') AS b, "
    "exists(tags, t -> t = 'y') AS c, aggregate(sequence(1, 4), 0, (s, x) -> s + x) AS d, "
    "map_filter(props, (k, v) -> v = 'L') AS e, zip_with(tags, tags, (x, y) -> concat(x, y)) AS f FROM orders",
    "windows": "SELECT window.start, window.end, user, count(*) AS n, sum(amount) AS s, count(DISTINCT qty) AS d "
    "FROM orders GROUP BY window(at, '1 minute'), user",
    "counted_ifs": "SELECT window.start AS s, count(*) FILTER (WHERE user = 'ann') AS a, count_if(amount > 100) AS b, "
    "max_by(id, price) AS m FROM orders GROUP BY window(at, '1 minute')",
    "items_by_sku": f"SELECT window.start AS s, i.sku AS sku, sum(i.qty) AS q FROM (SELECT at, explode({_ITEMS}) AS i "
    "FROM orders) GROUP BY window(at, '1 minute'), i.sku",
    "sessions": "SELECT session_window.start AS s, user, count(*) AS n FROM orders "
    "GROUP BY session_window(at, '20 seconds'), user",
    "top_user": "SELECT s, user, n FROM (SELECT window.start AS s, user, count(*) AS n, row_number() OVER "
    "(PARTITION BY window ORDER BY count(*) DESC, user) AS r FROM orders GROUP BY window(at, '2 minutes'), user) "
    "WHERE r = 1",
    "distinct": "SELECT DISTINCT id, user FROM orders",
}
EPOCH = {
    "variant": "SELECT id, variant_get(parse_json(items), '$[0].sku', 'string') AS s FROM orders WHERE items LIKE '[%'",
    "variant_explode": "SELECT o.id, v.pos, CAST(v.value AS STRING) AS t FROM orders o, "
    "LATERAL variant_explode(try_parse_json(o.items)) v",
    "lateral_explode": "SELECT o.id, t.tag FROM orders o LEFT JOIN LATERAL explode(o.tags) AS t(tag) ON true",
    "whole_as_json": "SELECT id, to_json(struct(*)) AS j FROM orders",
    "python": "SELECT id, tax(price) AS t FROM orders WHERE tax(price) > 0.5",
    "users": "SELECT o.id, u.name, u.tier FROM orders o LEFT JOIN users u ON o.user = u.user",
    "users_file": "SELECT o.id, u.tier FROM orders o JOIN parquet.`{users}` u ON o.user = u.user AND u.tier > 1",
    "vips": "WITH vip AS (SELECT user FROM users WHERE tier = 3) SELECT id, user IN (SELECT user FROM vip) AS v "
    "FROM orders",
    "ranked_users": "SELECT o.id, r.k FROM orders o JOIN "
    "(SELECT user, rank() OVER (ORDER BY tier DESC) AS k FROM users) r USING (user)",
    "unpivot": "SELECT id, k, v FROM (SELECT id, price AS a, CAST(qty AS DOUBLE) AS b FROM orders) "
    "UNPIVOT (v FOR k IN (a, b))",
    "collation": "SELECT id, user COLLATE UTF8_LCASE = 'CY' AS c FROM orders",
    "window_of_row": "SELECT id, window(at, '1 minute').start AS s FROM orders",
    "pipe": "FROM orders |> WHERE qty > 1 |> EXTEND soundex(user) AS s |> SELECT id, s",
    "set_variable": "SELECT id, amount * session.rate AS a FROM orders WHERE qty >= least_qty",
}
DEDICATED = {
    "tiers": "SELECT window.start AS s, u.tier, sum(o.amount) AS t FROM orders o JOIN users u ON o.user = u.user "
    "GROUP BY window(o.at, '1 minute'), u.tier",
    "taxes": "SELECT window.start AS s, sum(tax(price)) AS t FROM orders GROUP BY window(at, '1 minute')",
    "named_window": "SELECT w.start AS s, count(*) AS n FROM (SELECT window(at, '1 minute') AS w, * FROM orders) "
    "GROUP BY w",
    "gap_of_user": "SELECT session_window.start AS s, user, count(*) AS n FROM orders GROUP BY "
    "session_window(at, CASE WHEN user = 'ann' THEN '5 seconds' ELSE '15 seconds' END), user",
    "pivot": "SELECT w.start AS s, card, cash FROM (SELECT window(pat, '1 minute') AS w, method, paid FROM payments) "
    "PIVOT (sum(paid) FOR method IN ('card', 'cash'))",
    "paid": "SELECT O.ID, `P`.`Method`, u.tier " + _PAID.format(kind="") + " LEFT JOIN users u ON u.user = o.user",
    "unpaid": "SELECT o.id, o.user " + _PAID.format(kind="LEFT") + " WHERE p.pid IS NULL",
    "outer": "SELECT o.id, p.pid " + _PAID.format(kind="FULL"),
    "tags_paid": "SELECT o.id, p.pid, explode(o.tags) AS tag " + _PAID.format(kind=""),
    "paid_by_method": "SELECT window.start AS s, p.method, count(*) AS n " + _PAID.format(kind="")
    + " GROUP BY window(o.at, '1 minute'), p.method",
    "both": "SELECT window.start AS s, what, count(*) AS n FROM (SELECT at AS t, 'o' AS what FROM orders UNION ALL "
    "SELECT pat, 'p' FROM payments) GROUP BY window(t, '1 minute'), what",
}  # fmt: skip


def orders() -> list[dict[str, Any]]:
    """Rows with NULL and empty values, and a JSON text that is broken now and then."""
    rng, found, now = random.Random(3), list[dict[str, Any]](), _BEGIN
    for i in range(COUNT):
        now += timedelta(milliseconds=rng.randrange(200, 4000), seconds=40 if rng.random() < 0.03 else 0)
        items = [{"sku": rng.choice("ABC"), "qty": rng.randrange(4), "w": 1.5} for _ in range(rng.randrange(4))]
        found.append(
            {
                "id": i // 2 if rng.random() < 0.1 else i,
                "user": rng.choice(["ann", "bob", "Cy", None]),
                "amount": rng.choice([None, round(rng.uniform(-5, 500), 2)]),
                "price": rng.choice([None, rng.random() * 10]),
                "qty": rng.choice([0, 1, 2, 5, None]),
                "items": json.dumps(items) if rng.random() > 0.05 else "broken[",
                "tags": rng.choice([None, [], ["x"], ["x", "y"], ["z", None, "x"]]),
                "props": rng.choice([None, {}, {"c": "red"}, {"c": "blue", "s": "L"}]),
                "addr": rng.choice([None, {"city": "Bern", "zip": {"code": "3000", "area": 3}}, {"city": "Ulm"}]),
                "day": (_BEGIN.date() + timedelta(days=rng.randrange(3))).isoformat(),
                "at": _text(now - timedelta(milliseconds=rng.randrange(8000))),
            }
        )
    return found


def payments(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Payments of most orders, and some of no order."""
    rng, found = random.Random(4), list[dict[str, Any]]()
    for order in made:
        if rng.random() < 0.6:
            at = datetime.fromisoformat(order["at"]) + timedelta(seconds=rng.uniform(-3, 20))
            found.append(
                {
                    "pid": len(found),
                    "order_id": order["id"] if rng.random() < 0.85 else 9000 + order["id"],
                    "method": rng.choice(["card", "cash", "paypal"]),
                    "paid": round(rng.uniform(1, 300), 2),
                    "pat": _text(at),
                }
            )
    return found


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
