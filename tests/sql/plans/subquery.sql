SELECT t2 FROM (SELECT temp * 2 AS t2, k FROM s WHERE ok) x WHERE t2 > 10
----
query
reads: stream s (generator, json), 2 of its 14 columns: temp, ok
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project t2 := (temp * 2.0)
    Filter (ok and ((temp * 2.0) > 10.0))
      StreamScan s shared_required_schema=SOME [1 temp, 4 ok]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 4 ok]
  r1 := PhysicalFilter(r0) ring=0 where=(c4 AND (multiply(c1, '2.0'::DOUBLE) > '10.0'::DOUBLE))
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: (c4 AND (multiply(c1, '2.0'::DOUBLE) > '10.0'::DOUBLE))
  outputs:
    t2 DOUBLE = multiply(c1, '2.0'::DOUBLE)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 4 ok]
