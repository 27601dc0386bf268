SELECT k FROM s WHERE CASE WHEN TRUE THEN temp > 1 ELSE FALSE END
----
query
reads: stream s (generator, json), 2 of its 14 columns: temp, k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k
    Filter (temp > 1.0)
      StreamScan s shared_required_schema=SOME [1 temp, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 3 k]
  r1 := PhysicalFilter(r0) ring=0 where=(c1 > '1.0'::DOUBLE)
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: (c1 > '1.0'::DOUBLE)
  outputs:
    k STRING = c3

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 3 k]
