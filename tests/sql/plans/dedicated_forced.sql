-- any host
CREATE PIPELINE p INTO out WITH (host = 'dedicated', backpressure = 'drop', feed_limit = '5mb') AS
    SELECT window.start, count(*) AS n FROM s WHERE ok GROUP BY window(ts, '1 minute') EMIT CHANGES
----
pipeline p
reads: stream s (generator, json), 3 of its 14 columns: ok, n, ts
keeps: the state of Spark's own operators, in a checkpoint of its own
guarantees: sink out: exactly once while the process lives; kept in memory only
host: dedicated (the option host = 'dedicated')

logical plan
  Project ok, n, ts
    StreamScan s shared_required_schema=SOME [4 ok, 5 n, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [4 ok, 5 n, 13 ts]
  r1 := PhysicalProject(r0) ring=0 columns=3
  r2 := PhysicalFeed(r1) relation=s
  r3 := PhysicalDedicatedQuery(r2) in=streaming query mode=update sql=SELECT window.start, count(*) AS n FROM s WHERE ok GROUP BY window(ts, '1 minute')
  r4 := PhysicalSink(r3) sink=out type=memory staged_by=query guarantee=exactly once while the process lives; kept in memory only
  r5 := PhysicalCommit(r4) waits_for=a batch of the query

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    ok BOOLEAN = c4
    n BIGINT = c5
    ts TIMESTAMP = c13

dedicated query
  a Spark streaming query of its own, over the rows that the streams hand to it:
    SELECT window.start, count(*) AS n FROM s WHERE ok GROUP BY window(ts, '1 minute')
  reads s (ok, n, ts) where true
  emit: on change
  when it is too slow: drop beyond 5mb
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
  view (positions are those of the full schema): SOME [4 ok, 5 n, 13 ts]
