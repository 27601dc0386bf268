-- error: BAD_OPTION
-- at: 1:70
CREATE STREAM x (a INT) WITH (source = 'generator', format = 'json', max_epoch_bytes = 'many')
