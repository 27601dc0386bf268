-- error: BAD_LITERAL
-- at: 1:30
SELECT id FROM s WHERE day > '2024-02-30'
