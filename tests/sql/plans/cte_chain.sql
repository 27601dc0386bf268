WITH a AS (SELECT id, k, temp AS t FROM s), b AS (SELECT k, t * 2 AS tt FROM a WHERE id > 0) SELECT k, tt FROM b
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, temp, k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, tt := (temp * 2.0)
    Filter (id > 0)
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 3 k]
  r1 := PhysicalFilter(r0) ring=0 where=(c0 > 0::INTEGER)
  r2 := PhysicalProject(r1) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: (c0 > 0::INTEGER)
  outputs:
    k STRING = c3
    tt DOUBLE = multiply(c1, '2.0'::DOUBLE)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 3 k]
