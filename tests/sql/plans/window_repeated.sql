SELECT window(ts, '1 minute').end AS e, count(*) AS n FROM s GROUP BY window(ts, '1 minute')
----
query
reads: stream s (generator, json), 1 of its 14 columns: ts
keeps: the result so far for each open window, until the watermark closes the window (tumble 1 minute)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project e := window.end, n := agg0
    Aggregate by [window] compute [agg0 := count(*)]
      AssignWindow tumble 1 minute on ts
        StreamScan s shared_required_schema=SOME [13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [13 ts]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none window=tumble 1 minute partials=1
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on window close columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  window: tumble 1 minute
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: none
  outputs:
    e TIMESTAMP = make_timestamptz(window_end)
    n BIGINT = p0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [13 ts]
