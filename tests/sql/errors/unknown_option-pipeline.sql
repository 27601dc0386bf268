-- error: UNKNOWN_OPTION
-- at: 1:34
CREATE PIPELINE p INTO out WITH (late_sik = 'other') AS SELECT window.start AS t, count(*) AS n FROM s GROUP BY window(ts, '1 minute')
