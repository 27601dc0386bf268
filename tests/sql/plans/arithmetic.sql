SELECT id + 1 AS a, n * id AS b, temp / 2 AS c, id % 7 AS d, -n AS e, id DIV 2 AS f FROM s
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, temp, n
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := (id + 1), b := (n * cast(id as BIGINT)), c := (temp / 2.0), d := (id % 7), e := negative(n), f := (cast(id as BIGINT) div 2)
    StreamScan s shared_required_schema=SOME [0 id, 1 temp, 5 n]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 5 n]
  r1 := PhysicalProject(r0) ring=0 columns=6

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    a INT = add(c0, 1::INTEGER)
    b BIGINT = multiply(c5, CAST(c0 AS BIGINT))
    c DOUBLE = (c1 / '2.0'::DOUBLE)
    d INT = (c0 % 7::INTEGER)
    e BIGINT = subtract(c5)
    f BIGINT = CAST(CAST(c0 AS BIGINT)::HUGEINT // 2::BIGINT AS BIGINT)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 5 n]
