-- error: UNSUPPORTED_STATEFUL
-- at: 3:28
-- any host
CREATE PIPELINE p INTO out AS
    SELECT k, row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM s;
