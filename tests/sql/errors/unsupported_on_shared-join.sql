-- error: UNSUPPORTED_ON_SHARED
-- at: 1:20
SELECT s.id FROM s JOIN plain ON s.id = plain.a
