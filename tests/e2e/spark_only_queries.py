"""More queries that only Spark runs, for the oracle of the epoch host: functions of the session, static tables,
subqueries, table functions and functions that the verified list does not have."""

from __future__ import annotations

SPARK_ONLY = {
    # functions of the session
    "udf_nested": "SELECT id, shout(shout(device)) AS s FROM events",
    "udf_in_case": "SELECT id, CASE WHEN plus_one(v) > 50 THEN 'high' ELSE shout(kind) END AS c FROM events",
    "udf_of_null": "SELECT id, plus_one(NULL) AS n, shout(coalesce(device, 'none')) AS s FROM events",
    "udf_in_between": "SELECT id FROM events WHERE plus_one(v) BETWEEN 10 AND 20",
    "udf_in_list": "SELECT id FROM events WHERE shout(kind) IN ('A!', 'C!')",
    "udf_struct_field": "SELECT id, pair(device, v).left AS l FROM events WHERE pair(device, v).right > 5",
    "udf_of_struct": "SELECT id, to_json(pair(kind, v)) AS j FROM events",
    "udf_in_lambda": "SELECT id, size(filter(array(twice(v), v), x -> x > 50)) AS n FROM events",
    "arrow_and_plain": "SELECT id, doubled(id) + plus_one(v) AS s FROM events WHERE v IS NOT NULL",
    "sql_function_nested": "SELECT id, twice(twice(v)) AS q FROM events WHERE twice(v) > 20",
    "variable_in_filter": "SELECT id, v * factor AS t FROM events WHERE v > limit_of_v",
    "variable_in_case": "SELECT id, if(v > limit_of_v, factor, 0) AS f FROM events",
    "udf_over_window": "SELECT window.start AS s, plus_one(count(*)) AS n FROM events GROUP BY window(ts, '3 minutes')",
    "udf_having": "SELECT window.start AS s, kind, count(*) AS n FROM events GROUP BY window(ts, '3 minutes'), kind "
    "HAVING shout(kind) = 'A!'",
    "udf_over_sum": "SELECT window.end AS e, shout(concat(kind, sum(v))) AS t FROM events "
    "GROUP BY window(ts, '4 minutes'), kind",
    # static tables
    "left_join_is_null": "SELECT e.id FROM events e LEFT JOIN dim d ON e.device = d.name WHERE d.name IS NULL",
    "join_on_expression": "SELECT e.id, d.weight FROM events e JOIN dim d ON upper(e.device) = upper(d.name)",
    "join_inequality": "SELECT e.id, d.name FROM events e JOIN dim d ON e.v > d.weight AND e.kind = 'a'",
    "join_with_or": "SELECT e.id, d.name FROM events e JOIN dim d ON e.device = d.name OR e.v = d.weight",
    "join_with_udf": "SELECT e.id, shout(d.name) AS n FROM events e JOIN dim d ON e.device = d.name",
    "join_subquery": "SELECT e.id, d.w FROM events e JOIN (SELECT name, weight * 2 AS w FROM dim WHERE weight > 4) d "
    "ON e.device = d.name",
    "join_of_aggregate": "SELECT e.id, m.top FROM events e CROSS JOIN (SELECT max(weight) AS top FROM dim) m",
    "join_of_sorted": "SELECT e.id, d.name FROM events e JOIN (SELECT * FROM dim ORDER BY weight DESC LIMIT 2) d "
    "ON e.device = d.name",
    "join_of_ranked": "SELECT e.id, d.r FROM events e JOIN (SELECT name, row_number() OVER (ORDER BY weight) AS r "
    "FROM dim) d ON e.device = d.name",
    "join_values": "SELECT e.id, t.w FROM events e JOIN VALUES ('a', 1), ('b', 2) AS t(k, w) ON e.kind = t.k",
    "join_range": "SELECT e.id, r.id AS n FROM events e JOIN range(3) r ON e.v = r.id",
    "join_twice_same": "SELECT e.id, a.weight, b.name FROM events e JOIN dim a ON e.device = a.name "
    "LEFT JOIN dim b ON a.weight = b.weight",
    "join_with": "WITH h AS (SELECT name FROM dim WHERE weight > 4) SELECT e.id, h.name FROM events e JOIN h "
    "ON e.device = h.name",
    "join_star": "SELECT e.id, d.* FROM events e JOIN dim d ON e.device = d.name",
    "semi_of_two": "SELECT id FROM events e LEFT SEMI JOIN dim d ON e.device = d.name AND e.v > d.weight",
    "anti_of_filtered": "SELECT id FROM events e LEFT ANTI JOIN (SELECT name FROM dim WHERE weight > 20) d "
    "ON e.device = d.name",
    "shuffle_hint": "SELECT /*+ SHUFFLE_HASH(d) */ e.id, d.weight FROM events e JOIN dim d ON e.device = d.name",
    "csv_columns": "SELECT e.id, upper(c._c0) AS u FROM events e JOIN csv.`{csv}` c ON e.kind = c._c0",
    "parquet_left": "SELECT e.id, d.weight FROM events e LEFT JOIN parquet.`{dim}` d ON e.device = d.name",
    "windows_then_udf": "SELECT window.start AS s, max(v) AS m, plus_one(max(v)) AS p FROM events "
    "GROUP BY window(ts, '5 minutes')",
    # subqueries over static tables
    "scalar_in_select": "SELECT id, v - (SELECT min(weight) FROM dim) AS d FROM events",
    "scalar_in_case": "SELECT id, CASE WHEN v > (SELECT avg(weight) FROM dim) THEN 1 ELSE 0 END AS b FROM events",
    "not_in": "SELECT id FROM events WHERE kind NOT IN (SELECT kind FROM kinds WHERE label = 'first')",
    "not_exists": "SELECT id FROM events e WHERE NOT EXISTS (SELECT 1 FROM dim d WHERE d.name = e.device)",
    "correlated_count": "SELECT id, (SELECT count(*) FROM dim d WHERE d.weight < e.v) AS n FROM events e",
    "correlated_label": "SELECT id, (SELECT max(label) FROM kinds k WHERE k.kind = e.kind) AS l FROM events e",
    "any_of_subquery": "SELECT id FROM events WHERE device IN (SELECT name FROM heavy) OR v > 90",
    # table functions and functions that are not on the verified list
    "lateral_subquery": "SELECT e.id, t.s FROM events e, LATERAL (SELECT e.v + 1 AS s) t",
    "lateral_join": "SELECT e.id, d.name FROM events e JOIN LATERAL (SELECT name FROM dim WHERE weight < e.v) d",
    "variant_get": "SELECT id, variant_get(parse_json('{\"a\": 5}'), '$.a', 'int') + v AS s FROM events",
    "from_csv_struct": "SELECT id, from_csv(concat_ws(',', kind, v), 'k STRING, n INT').n AS n FROM events",
    "to_csv_struct": "SELECT id, to_csv(named_struct('k', kind, 'v', v)) AS c FROM events",
    "xpath_of": "SELECT id, xpath_string(concat('<a>', kind, '</a>'), 'a') AS x FROM events",
    "sentences_of": "SELECT id, size(sentences(concat(kind, '. ', kind))) AS n FROM events",
    "two_udfs": "SELECT id, concat(shout(kind), '-', shout(device)) AS c FROM events",
}
