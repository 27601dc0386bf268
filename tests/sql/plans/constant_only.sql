SELECT 1 AS one, 'x' AS x FROM s
----
query
reads: stream s (generator, json), none of its 14 columns, only the number of rows
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project one := 1, x := 'x'
    StreamScan s shared_required_schema=NONE

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=NONE
  r1 := PhysicalProject(r0) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    one INT = 1::INTEGER
    x STRING = 'x'

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): NONE
