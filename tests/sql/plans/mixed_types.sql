SELECT id + temp AS a, hum + id AS b, price + temp AS c, id = 3.0 AS d FROM s
----
query
reads: stream s (generator, json), 4 of its 14 columns: id, temp, hum, price
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := (cast(id as DOUBLE) + temp), b := (cast(hum as DOUBLE) + cast(id as DOUBLE)), c := (cast(price as DOUBLE) + temp), d := (cast(id as DECIMAL(11,1)) = 3.0)
    StreamScan s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 6 price]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 6 price]
  r1 := PhysicalProject(r0) ring=0 columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    a DOUBLE = add(CAST(c0 AS DOUBLE), c1)
    b DOUBLE = add(CAST(c2 AS DOUBLE), CAST(c0 AS DOUBLE))
    c DOUBLE = add(CAST(CAST(c6 AS VARCHAR) AS DOUBLE), c1)
    d BOOLEAN = (CAST(c0 AS DECIMAL(11,1)) = '3.0'::DECIMAL(11,1))

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 2 hum, 6 price]
