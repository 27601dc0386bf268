-- error: NOT_GROUPED
-- at: 1:14
SELECT upper(k) AS u, count(*) FROM s GROUP BY lower(k)
