-- error: UNKNOWN_TYPE
-- at: 1:19
SELECT CAST(id AS CHAR(0)) AS c FROM s
