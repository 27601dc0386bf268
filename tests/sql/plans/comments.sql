-- a comment
SELECT /* inner */ id -- trailing
FROM s
----
query
reads: stream s (generator, json), 1 of its 14 columns: id
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    StreamScan s shared_required_schema=SOME [0 id]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id]
  r1 := PhysicalProject(r0) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: none
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
  view (positions are those of the full schema): SOME [0 id]
