SELECT * FROM plain
----
query
reads: stream plain (generator, json), 3 of its 3 columns: a, b, c
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a, b, c
    StreamScan plain shared_required_schema=ALL (3 columns)

physical plan
  r0 := PhysicalSharedStream() stream=plain shared_required_schema=ALL (3 columns)
  r1 := PhysicalProject(r0) ring=0 columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    a INT = c0
    b INT = c1
    c STRING = c2

watermark
  none: the stream declares no event time

sinks
  none

stream plain
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 3 columns
  view (positions are those of the full schema): ALL (3 columns)
