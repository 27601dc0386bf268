SELECT id, posexplode_outer(attrs) FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, attrs
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, pos, key, value
    Generate outer pos := each of transform(map_keys(attrs), (place) -> place), key := each of map_keys(attrs), value := each of map_values(attrs)
      StreamScan s shared_required_schema=SOME [0 id, 10 attrs]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 10 attrs]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 INT, c15 STRING, c16 STRING outer=yes
  r2 := PhysicalProject(r1) ring=0 columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of (a row of NULLs for none):
    c14 INT = list_transform(list_transform(c10_entries, lambda x_1: x_1.key), lambda v_element, v_place: (CAST(v_place - 1 AS INTEGER)))
    c15 STRING = list_transform(c10_entries, lambda x_1: x_1.key)
    c16 STRING = list_transform(c10_entries, lambda x_1: x_1.value)
  outputs:
    id INT = c0
    pos INT = c14
    key STRING = c15
    value STRING = c16

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 10 attrs]
