SELECT id, explode(tags) AS tag FROM s WHERE id > 2
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, tags
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, tag
    Generate tag := each of tags
      Filter (id > 2)
        StreamScan s shared_required_schema=SOME [0 id, 9 tags]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 9 tags]
  r1 := PhysicalFilter(r0) ring=0 where=(c0 > 2::INTEGER)
  r2 := PhysicalGenerate(r1) ring=0 makes=c14 STRING outer=no
  r3 := PhysicalProject(r2) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: (c0 > 2::INTEGER)
  rows made of the elements of:
    c14 STRING = c9
  outputs:
    id INT = c0
    tag STRING = c14

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 9 tags]
