SELECT * FROM plain
----
query
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a, b, c
    StreamScan plain shared_required_schema=ALL (3 columns)

physical plan
  r0 := PhysicalSharedStream() stream=plain shared_required_schema=ALL (3 columns)
  r1 := PhysicalProject(r0) ring=0 columns=3
  r2 := PhysicalBridge(r1) lane=pipeline payload=rows
  r3 := PhysicalResultCollect(r2)

ring 0
  filter: none
  outputs:
    a INT = c0
    b INT = c1
    c STRING = c2

bridge
  one lane, rows; no state
  order within an epoch: events, watermark, barrier, end
  barriers: the sinks wait for all tasks of the epoch

ring 1
  nothing: the query keeps no state

watermark
  none: the stream declares no event time

sinks
  none

stream plain
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 3 columns
  view (positions are those of the full schema): ALL (3 columns)
