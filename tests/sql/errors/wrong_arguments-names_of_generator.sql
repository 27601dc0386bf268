-- error: WRONG_ARGUMENTS
-- at: 1:8
SELECT posexplode(tags) AS (a, b, c) FROM s
