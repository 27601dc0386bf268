SELECT window_start, window_end, sum(price) AS p FROM CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL 10 MINUTES, INTERVAL 1 HOUR) GROUP BY window_start, window_end
----
query
reads: stream s (generator, json), 2 of its 14 columns: price, ts
keeps: the result so far for each open window, until the watermark closes the window (cumulate 10 minutes up to 1 hour)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project window_start, window_end, p := agg0
    Aggregate by [window_start, window_end] compute [agg0 := sum(price)]
      AssignWindow cumulate 10 minutes up to 1 hour on ts
        StreamScan s shared_required_schema=SOME [6 price, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [6 price, 13 ts]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none window=cumulate 10 minutes up to 1 hour partials=2
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on window close columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  window: cumulate 10 minutes up to 1 hour
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DECIMAL(38,2) = sum(c6); merged by sum(p1)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: none
  outputs:
    window_start TIMESTAMP = make_timestamptz(window_start)
    window_end TIMESTAMP = make_timestamptz(window_end)
    p DECIMAL(20,2) = (CAST(p1 AS DECIMAL(20,2)))

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [6 price, 13 ts]
