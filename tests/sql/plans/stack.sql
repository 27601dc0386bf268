SELECT id, stack(2, temp, k, 1.5D) FROM s
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, temp, k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, col0, col1
    Generate col0 := each of array(temp, 1.5), col1 := each of array(k, null)
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 3 k]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 DOUBLE, c15 STRING outer=no
  r2 := PhysicalProject(r1) ring=0 columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of:
    c14 DOUBLE = CAST([c1, '1.5'::DOUBLE] AS DOUBLE[])
    c15 STRING = CAST([c3, CAST(NULL AS VARCHAR)] AS VARCHAR[])
  outputs:
    id INT = c0
    col0 DOUBLE = c14
    col1 STRING = c15

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 3 k]
