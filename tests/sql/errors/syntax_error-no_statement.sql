-- error: SYNTAX_ERROR
-- at: 1:1
FROBNICATE s
