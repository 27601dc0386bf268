-- error: BAD_LITERAL
-- at: 1:29
SELECT id FROM s WHERE ts > 'yesterday'
