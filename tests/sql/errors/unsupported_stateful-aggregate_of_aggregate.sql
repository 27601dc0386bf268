-- error: UNSUPPORTED_STATEFUL
-- at: 3:70
-- any host
CREATE PIPELINE p INTO out AS
    SELECT max(c) AS m FROM (SELECT k, count(*) AS c FROM s GROUP BY k) q;
