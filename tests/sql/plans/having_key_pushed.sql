SELECT k, count(*) AS n FROM s GROUP BY k HAVING k <> 'x' AND n > 1
----
