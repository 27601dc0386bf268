-- error: UNKNOWN_STREAM
-- at: 1:16
SELECT id FROM sensors
