-- error: NOT_GROUPED
-- at: 1:8
SELECT id, count(*) FROM s
