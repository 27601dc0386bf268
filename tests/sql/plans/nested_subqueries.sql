SELECT b FROM (SELECT a + 1 AS b FROM (SELECT id AS a FROM s WHERE id > 1) q1 WHERE a < 10) q2 WHERE b <> 5
----
query
reads: stream s (generator, json), 1 of its 14 columns: id
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project b := (id + 1)
    Filter (((id > 1) and (id < 10)) and ((id + 1) != 5))
      StreamScan s shared_required_schema=SOME [0 id]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id]
  r1 := PhysicalFilter(r0) ring=0 where=CASE WHEN (c0 > 1::INTEGER) THEN CASE WHEN (c0 < 10::INTEGER) THEN ((add(c0, 1::INTEGER) <> 5::INTEGER)) ELSE FALSE END ELSE FALSE END
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: CASE WHEN (c0 > 1::INTEGER) THEN CASE WHEN (c0 < 10::INTEGER) THEN ((add(c0, 1::INTEGER) <> 5::INTEGER)) ELSE FALSE END ELSE FALSE END
  outputs:
    b INT = add(c0, 1::INTEGER)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id]
