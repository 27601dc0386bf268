SELECT window_start, window_end, count(*) AS n FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE) WHERE window_start >= '2024-01-01' AND temp > 0 GROUP BY window_start, window_end
----
query
reads: stream s (generator, json), 2 of its 14 columns: temp, ts
keeps: the result so far for each open window, until the watermark closes the window (tumble 1 minute)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project window_start, window_end, n := agg0
    Filter (window_start >= timestamp '2024-01-01 00:00:00Z')
      Aggregate by [window_start, window_end] compute [agg0 := count(*)]
        AssignWindow tumble 1 minute on ts
          Filter (temp > 0.0)
            StreamScan s shared_required_schema=SOME [1 temp, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 13 ts]
  r1 := PhysicalFilter(r0) ring=0 where=(c1 > '0.0'::DOUBLE)
  r2 := PhysicalPartialAggregate(r1) ring=0 keys=none window=tumble 1 minute partials=1
  r3 := PhysicalBridge(r2) lane=pipeline
  r4 := PhysicalMergeAggregate(r3) ring=1 emit=on window close having=(make_timestamptz(window_start) >= make_timestamptz(1704067200000000::BIGINT)) columns=3

ring 0 (in the tasks that read the stream)
  filter: (c1 > '0.0'::DOUBLE)
  window: tumble 1 minute
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: (make_timestamptz(window_start) >= make_timestamptz(1704067200000000::BIGINT))
  outputs:
    window_start TIMESTAMP = make_timestamptz(window_start)
    window_end TIMESTAMP = make_timestamptz(window_end)
    n BIGINT = p0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 13 ts]
