-- error: BAD_WINDOW
-- at: 1:8
SELECT first(a) FROM plain
