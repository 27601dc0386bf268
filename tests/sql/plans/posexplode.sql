SELECT k, posexplode(tags) AS (i, tag) FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: k, tags
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, i, tag
    Generate i := each of transform(tags, (place) -> place), tag := each of tags
      StreamScan s shared_required_schema=SOME [3 k, 9 tags]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k, 9 tags]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 INT, c15 STRING outer=no
  r2 := PhysicalProject(r1) ring=0 columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of:
    c14 INT = list_transform(c9, lambda v_element, v_place: (CAST(v_place - 1 AS INTEGER)))
    c15 STRING = c9
  outputs:
    k STRING = c3
    i INT = c14
    tag STRING = c15

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k, 9 tags]
