-- error: SYNTAX_ERROR
-- at: 1:38
CREATE OR REPLACE SINK IF NOT EXISTS x WITH (type = 'memory')
