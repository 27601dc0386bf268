CREATE PIPELINE p INTO out, other AS SELECT id FROM s WHERE ok
----
pipeline p
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    Filter ok
      StreamScan s shared_required_schema=SOME [0 id, 4 ok]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 4 ok]
  r1 := PhysicalFilter(r0) ring=0 where=c4
  r2 := PhysicalProject(r1) ring=0 columns=1
  r3 := PhysicalBridge(r2) lane=pipeline payload=rows
  r4 := PhysicalSink(r3) sink=out type=memory guarantee=exactly once while the process lives; kept in memory only
  r5 := PhysicalSink(r3) sink=other type=memory guarantee=exactly once while the process lives; kept in memory only
  r6 := PhysicalBarrier(r4, r5) upstream_count=2
  r7 := PhysicalResultCollect(r6)

ring 0
  filter: c4
  outputs:
    id INT = c0

bridge
  one lane, rows; no state
  order within an epoch: events, watermark, barrier, end
  barriers: the sinks wait for all tasks of the epoch

ring 1
  nothing: the query keeps no state

watermark
  highest ts of the whole stream - 10 seconds

sinks
  out: memory, exactly once while the process lives; kept in memory only
  other: memory, exactly once while the process lives; kept in memory only
  barriers wait for all 2 of them

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 4 ok]
