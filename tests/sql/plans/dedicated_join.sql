-- any host
CREATE PIPELINE p INTO out AS
    SELECT s.id, plain.c FROM s JOIN plain ON s.id = plain.a WHERE s.temp > 3
----
pipeline p
reads: stream s (generator, json), 3 of its 14 columns: id, temp, ts; stream plain
keeps: the state of Spark's own operators, in a checkpoint of its own
guarantees: sink out: exactly once while the process lives; kept in memory only
host: dedicated (a query over two streams needs state over several epochs)
decided by: plain

logical plan
  Project id, temp, ts
    StreamScan s shared_required_schema=SOME [0 id, 1 temp, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 13 ts]
  r1 := PhysicalProject(r0) ring=0 columns=3
  r2 := PhysicalFeed(r1) relation=s
  r3 := PhysicalSharedStream() stream=plain shared_required_schema=SOME [0 a, 2 c]
  r4 := PhysicalProject(r3) ring=0 columns=2
  r5 := PhysicalFeed(r4) relation=plain
  r6 := PhysicalBarrier(r2, r5) aligns=s, plain for=savepoints
  r7 := PhysicalDedicatedQuery(r6) in=streaming query mode=append sql=SELECT s.id, plain.c FROM s JOIN plain ON s.id = plain.a WHERE s.temp > 3
  r8 := PhysicalSink(r7) sink=out type=memory staged_by=query guarantee=exactly once while the process lives; kept in memory only
  r9 := PhysicalCommit(r8) waits_for=a batch of the query

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    id INT = c0
    temp DOUBLE = c1
    ts TIMESTAMP = c13

dedicated query
  a Spark streaming query of its own, over the rows that the streams hand to it:
    SELECT s.id, plain.c FROM s JOIN plain ON s.id = plain.a WHERE s.temp > 3
  reads s (id, temp, ts) where true
  reads plain (a, c) where true
  emit: when a row is final
  when it is too slow: spill
  not checked: Spark checks it when the pipeline is created

watermark
  the smallest of those of its streams:
    s: ts - 10 seconds
    plain: none

sinks
  out: memory, exactly once while the process lives; kept in memory only
  commit: when a batch of the dedicated query is done

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 13 ts]
