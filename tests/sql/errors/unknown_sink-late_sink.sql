-- error: UNKNOWN_SINK
-- at: 1:34
CREATE PIPELINE p INTO out WITH (late_sink = nowhere) AS SELECT window.start AS t, count(*) AS n FROM s GROUP BY window(ts, '1 minute')
