CREATE PIPELINE p INTO out WITH (max_groups = 5000, late_sink = 'other') AS
SELECT window.start AS since, k, count(*) AS n FROM s WHERE n > 3 GROUP BY window(ts, '1 minute'), k
----
pipeline p
reads: stream s (generator, json), 3 of its 14 columns: k, n, ts
keeps: the result so far for each group (1 key) and open window, until the watermark closes the window (tumble 1 minute)
guarantees: sink out: exactly once while the process lives; kept in memory only
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project since := window.start, k, n := agg0
    Aggregate by [window, k] compute [agg0 := count(*)]
      AssignWindow tumble 1 minute on ts
        Filter (n > 3)
          StreamScan s shared_required_schema=SOME [3 k, 5 n, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k, 5 n, 13 ts]
  r1 := PhysicalFilter(r0) ring=0 where=(c5 > 3::BIGINT)
  r2 := PhysicalPartialAggregate(r1) ring=0 keys=k0 window=tumble 1 minute partials=1
  r3 := PhysicalBridge(r2) lane=(pipeline, hash(k0))
  r4 := PhysicalMergeAggregate(r3) ring=1 emit=on window close columns=3
  r5 := PhysicalSink(r4) sink=out type=memory staged_by=lanes guarantee=exactly once while the process lives; kept in memory only
  r6 := PhysicalCommit(r5) waits_for=all tasks and lanes

ring 0 (in the tasks that read the stream)
  filter: (c5 > 3::BIGINT)
  window: tumble 1 minute
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  limit: 5000 groups
  having: none
  outputs:
    since TIMESTAMP = make_timestamptz(window_start)
    k STRING = k0
    n BIGINT = p0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  out: memory, exactly once while the process lives; kept in memory only
  other: memory, gets late rows (k, n, ts)
  commit: when all tasks and lanes of the epoch have delivered its barrier

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k, 5 n, 13 ts]
