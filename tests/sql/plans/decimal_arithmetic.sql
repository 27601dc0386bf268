SELECT price * 2 AS a, price + 1.5 AS b, price / 3 AS c, price - id AS d FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, price
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := (price * 2), b := (price + 1.5), c := (price / 3), d := (price - cast(id as DECIMAL(10,0)))
    StreamScan s shared_required_schema=SOME [0 id, 6 price]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 6 price]
  r1 := PhysicalProject(r0) ring=0 columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    a DECIMAL(12,2) = CAST(CAST(c6 AS DECIMAL(12,2)) * '2'::DECIMAL(1,0) AS DECIMAL(12,2))
    b DECIMAL(11,2) = CAST(CAST(c6 AS DECIMAL(11,2)) + CAST('1.5'::DECIMAL(2,1) AS DECIMAL(11,2)) AS DECIMAL(11,2))
    c DECIMAL(14,6) = CASE WHEN '3'::DECIMAL(1,0) = 0 AND c6 IS NOT NULL THEN error('DIVIDE_BY_ZERO') ELSE CAST(CAST(((((abs(CAST(CAST(c6 AS DECIMAL(13,2)) * 100::DECIMAL(3,0) AS BIGINT)) * 10000) // abs(CAST(CAST('3'::DECIMAL(1,0) AS DECIMAL(2,0)) * 1::DECIMAL(1,0) AS BIGINT)))::HUGEINT * 1 + ((((abs(CAST(CAST(c6 AS DECIMAL(13,2)) * 100::DECIMAL(3,0) AS BIGINT)) * 10000) % abs(CAST(CAST('3'::DECIMAL(1,0) AS DECIMAL(2,0)) * 1::DECIMAL(1,0) AS BIGINT))) * 2 + abs(CAST(CAST('3'::DECIMAL(1,0) AS DECIMAL(2,0)) * 1::DECIMAL(1,0) AS BIGINT))) // (abs(CAST(CAST('3'::DECIMAL(1,0) AS DECIMAL(2,0)) * 1::DECIMAL(1,0) AS BIGINT)) * 2))) * CASE WHEN (c6 < 0) <> ('3'::DECIMAL(1,0) < 0) THEN -1 ELSE 1 END) AS DECIMAL(20,0)) * '0.000001'::DECIMAL(6,6) AS DECIMAL(14,6)) END
    d DECIMAL(13,2) = CAST(CAST(c6 AS DECIMAL(13,2)) - CAST(CAST(c0 AS DECIMAL(10,0)) AS DECIMAL(13,2)) AS DECIMAL(13,2))

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 6 price]
