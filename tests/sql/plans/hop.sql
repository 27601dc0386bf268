SELECT window.start, window.end, sum(n) AS total FROM s GROUP BY window(ts, '10 minutes', '5 minutes')
----
query
reads: stream s (generator, json), 2 of its 14 columns: n, ts
keeps: the result so far for each open window, until the watermark closes the window (hop 10 minutes every 5 minutes)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project start := window.start, end := window.end, total := agg0
    Aggregate by [window] compute [agg0 := sum(n)]
      AssignWindow hop 10 minutes every 5 minutes on ts
        StreamScan s shared_required_schema=SOME [5 n, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [5 n, 13 ts]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none window=hop 10 minutes every 5 minutes partials=2
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on window close columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  window: hop 10 minutes every 5 minutes
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DECIMAL(38,0) = sum(c5); merged by sum(p1)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: none
  outputs:
    start TIMESTAMP = make_timestamptz(window_start)
    end TIMESTAMP = make_timestamptz(window_end)
    total BIGINT = (CAST(p1 AS BIGINT))

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [5 n, 13 ts]
