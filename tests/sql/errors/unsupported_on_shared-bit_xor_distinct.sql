-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT bit_xor(DISTINCT id) FROM s
