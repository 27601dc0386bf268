SELECT id FROM s WHERE k IN ('a', 'b') AND id NOT IN (1, 2, 3)
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    Filter ((k in ('a', 'b')) and (not (id in (1, 2, 3))))
      StreamScan s shared_required_schema=SOME [0 id, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k]
  r1 := PhysicalFilter(r0) ring=0 where=((c3 IN ('a', 'b')) AND (NOT (c0 IN (1::INTEGER, 2::INTEGER, 3::INTEGER))))
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: ((c3 IN ('a', 'b')) AND (NOT (c0 IN (1::INTEGER, 2::INTEGER, 3::INTEGER))))
  outputs:
    id INT = c0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k]
