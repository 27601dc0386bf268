SELECT id, inline(array(struct(id AS a, k AS b), struct(3 AS a, 'x' AS b))) FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, a, b
    Generate a := each of transform(array(struct(id, k), struct(3, 'x')), (element) -> element.a), b := each of transform(array(struct(id, k), struct(3, 'x')), (element) -> element.b)
      StreamScan s shared_required_schema=SOME [0 id, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 INT, c15 STRING outer=no
  r2 := PhysicalProject(r1) ring=0 columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of:
    c14 INT = list_transform(CAST([struct_pack("a" := CAST(c0 AS INTEGER), "b" := CAST(c3 AS VARCHAR)), struct_pack("a" := CAST(3::INTEGER AS INTEGER), "b" := CAST('x' AS VARCHAR))] AS STRUCT("a" INTEGER, "b" VARCHAR)[]), lambda v_row: ((v_row)."a"))
    c15 STRING = list_transform(CAST([struct_pack("a" := CAST(c0 AS INTEGER), "b" := CAST(c3 AS VARCHAR)), struct_pack("a" := CAST(3::INTEGER AS INTEGER), "b" := CAST('x' AS VARCHAR))] AS STRUCT("a" INTEGER, "b" VARCHAR)[]), lambda v_row: ((v_row)."b"))
  outputs:
    id INT = c0
    a INT = c14
    b STRING = c15

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k]
