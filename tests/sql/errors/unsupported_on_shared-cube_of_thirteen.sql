-- error: UNSUPPORTED_ON_SHARED
-- at: 1:38
SELECT count(*) AS n FROM s GROUP BY CUBE(id, temp, k, n, id + 1, id + 2, id + 3, id + 4, id + 5, id + 6, id + 7, id + 8, id + 9)
