SELECT id, explode_outer(tags) FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, tags
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, col
    Generate outer col := each of tags
      StreamScan s shared_required_schema=SOME [0 id, 9 tags]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 9 tags]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 STRING outer=yes
  r2 := PhysicalProject(r1) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of (a row of NULLs for none):
    c14 STRING = c9
  outputs:
    id INT = c0
    col STRING = c14

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 9 tags]
