-- any host
CREATE PIPELINE p INTO out AS
    SELECT max(c) AS m FROM (SELECT k, count(*) AS c FROM s GROUP BY k) q
----
pipeline p
reads: stream s (generator, json), 2 of its 14 columns: k, ts
keeps: the state of Spark's own operators, in a checkpoint of its own
guarantees: sink out: exactly once while the process lives; kept in memory only
host: dedicated (an aggregate of an aggregate is not supported in the groups of a stream)
decided by: k

logical plan
  Project k, ts
    StreamScan s shared_required_schema=SOME [3 k, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k, 13 ts]
  r1 := PhysicalProject(r0) ring=0 columns=2
  r2 := PhysicalFeed(r1) relation=s
  r3 := PhysicalDedicatedQuery(r2) in=streaming query mode=append sql=SELECT max(c) AS m FROM (SELECT k, count(*) AS c FROM s GROUP BY k) q
  r4 := PhysicalSink(r3) sink=out type=memory staged_by=query guarantee=exactly once while the process lives; kept in memory only
  r5 := PhysicalCommit(r4) waits_for=a batch of the query

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    k STRING = c3
    ts TIMESTAMP = c13

dedicated query
  a Spark streaming query of its own, over the rows that the streams hand to it:
    SELECT max(c) AS m FROM (SELECT k, count(*) AS c FROM s GROUP BY k) q
  reads s (k, ts) where true
  emit: when a row is final
  when it is too slow: spill
  not checked: Spark checks it when the pipeline is created

watermark
  highest ts of the whole stream - 10 seconds

sinks
  out: memory, exactly once while the process lives; kept in memory only
  commit: when a batch of the dedicated query is done

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k, 13 ts]
