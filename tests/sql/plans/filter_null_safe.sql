SELECT id FROM s WHERE k <=> 'a' AND ok IS NOT TRUE
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, k, ok
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    Filter ((k <=> 'a') and (not (ok <=> true)))
      StreamScan s shared_required_schema=SOME [0 id, 3 k, 4 ok]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k, 4 ok]
  r1 := PhysicalFilter(r0) ring=0 where=((c3 IS NOT DISTINCT FROM 'a') AND (NOT (c4 IS NOT DISTINCT FROM TRUE)))
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: ((c3 IS NOT DISTINCT FROM 'a') AND (NOT (c4 IS NOT DISTINCT FROM TRUE)))
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
  view (positions are those of the full schema): SOME [0 id, 3 k, 4 ok]
