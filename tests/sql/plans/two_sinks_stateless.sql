CREATE PIPELINE p INTO out, other AS SELECT id FROM s WHERE ok
----
pipeline p
reads: stream s (generator, json), 2 of its 14 columns: id, ok
keeps: no state: every row is handled by itself
guarantees: sink out: exactly once while the process lives; kept in memory only; sink other: exactly once while the process lives; kept in memory only
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    Filter ok
      StreamScan s shared_required_schema=SOME [0 id, 4 ok]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 4 ok]
  r1 := PhysicalFilter(r0) ring=0 where=c4
  r2 := PhysicalProject(r1) ring=0 columns=1
  r3 := PhysicalSink(r2) sink=out type=memory staged_by=tasks guarantee=exactly once while the process lives; kept in memory only
  r4 := PhysicalSink(r2) sink=other type=memory staged_by=tasks guarantee=exactly once while the process lives; kept in memory only
  r5 := PhysicalCommit(r3, r4) waits_for=all tasks

ring 0 (in the tasks that read the stream)
  filter: c4
  outputs:
    id INT = c0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  out: memory, exactly once while the process lives; kept in memory only
  other: memory, exactly once while the process lives; kept in memory only
  commit: when all tasks of the epoch have delivered its barrier

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 4 ok]
