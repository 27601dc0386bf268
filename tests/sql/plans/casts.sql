SELECT CAST(temp AS INT) AS a, TRY_CAST(k AS INT) AS b, CAST(id AS STRING) AS c, n::DOUBLE AS d, CAST(ts AS DATE) AS e FROM s
----
query
reads: stream s (generator, json), 5 of its 14 columns: id, temp, k, n, ts
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := cast(temp as INT), b := try_cast(k as INT), c := cast(id as STRING), d := cast(n as DOUBLE), e := cast(ts as DATE)
    StreamScan s shared_required_schema=SOME [0 id, 1 temp, 3 k, 5 n, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 3 k, 5 n, 13 ts]
  r1 := PhysicalProject(r0) ring=0 columns=5

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    a INT = CAST(trunc(c1) AS INTEGER)
    b INT = CASE WHEN regexp_full_match(c3, '[+-]?[0-9]+') THEN TRY_CAST(c3 AS INTEGER) WHEN c3 IS NULL THEN NULL WHEN regexp_full_match(trim(c3, (chr(0) || E'\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x20\x7f')), '[+-]?[0-9]+') THEN TRY_CAST(trim(c3, (chr(0) || E'\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x20\x7f')) AS INTEGER) ELSE NULL END
    c STRING = CAST(c0 AS VARCHAR)
    d DOUBLE = CAST(c5 AS DOUBLE)
    e DATE = CAST(make_timestamp(hr_reading(epoch_us(c13))) AS DATE)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 3 k, 5 n, 13 ts]
