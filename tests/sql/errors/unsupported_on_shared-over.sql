-- error: UNSUPPORTED_ON_SHARED
-- at: 1:12
SELECT id, row_number() OVER (PARTITION BY k ORDER BY ts) AS r FROM s
