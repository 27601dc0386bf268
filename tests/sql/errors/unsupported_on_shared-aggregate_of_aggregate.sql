-- error: UNSUPPORTED_ON_SHARED
-- at: 1:61
SELECT max(n) FROM (SELECT k, count(*) AS n FROM s GROUP BY k) q
