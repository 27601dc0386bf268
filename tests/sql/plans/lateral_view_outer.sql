SELECT v.id, t.*, pos.lat FROM s v LATERAL VIEW OUTER posexplode(tags) t AS i, tag
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, tags, pos.lat
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, i, tag, lat := pos.lat
    Generate outer i := each of transform(tags, (place) -> place), tag := each of tags
      StreamScan s shared_required_schema=SOME [0 id, 8 pos, 9 tags]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 8 pos.lat, 9 tags]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 INT, c15 STRING outer=yes
  r2 := PhysicalProject(r1) ring=0 columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of (a row of NULLs for none):
    c14 INT = list_transform(c9, lambda v_element, v_place: (CAST(v_place - 1 AS INTEGER)))
    c15 STRING = c9
  outputs:
    id INT = c0
    i INT = c14
    tag STRING = c15
    lat DOUBLE = c1000000

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 8 pos.lat, 9 tags]
