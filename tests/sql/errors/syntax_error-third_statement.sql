-- error: SYNTAX_ERROR
-- at: 3:1
CREATE SINK a WITH (type = 'memory');
SHOW STREAMS;
SELEC id FROM s;
