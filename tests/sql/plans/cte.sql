WITH hot AS (SELECT * FROM s WHERE temp > 30) SELECT id, k FROM hot WHERE ok
----
query
reads: stream s (generator, json), 4 of its 14 columns: id, temp, k, ok
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, k
    Filter ((temp > 30.0) and ok)
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 3 k, 4 ok]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 3 k, 4 ok]
  r1 := PhysicalFilter(r0) ring=0 where=((c1 > '30.0'::DOUBLE) AND c4)
  r2 := PhysicalProject(r1) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: ((c1 > '30.0'::DOUBLE) AND c4)
  outputs:
    id INT = c0
    k STRING = c3

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 3 k, 4 ok]
