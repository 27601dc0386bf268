SELECT window.start, sum(v) AS total FROM local GROUP BY window(t, '1 minute')
----
query
reads: stream local (generator, json), 2 of its 3 columns: v, t
keeps: the result so far for each open window, until the watermark closes the window (tumble 1 minute)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project start := window.start, total := agg0
    Aggregate by [window] compute [agg0 := sum(v)]
      AssignWindow tumble 1 minute on t
        StreamScan local shared_required_schema=SOME [0 v, 2 t]

physical plan
  r0 := PhysicalSharedStream() stream=local shared_required_schema=SOME [0 v, 2 t]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none window=tumble 1 minute partials=3
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on window close columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  window: tumble 1 minute
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DOUBLE = fsum(c0); merged by fsum(p1)
    p2 DOUBLE = sum(c0); merged by sum(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: none
  outputs:
    start TIMESTAMP_NTZ = make_timestamp(window_start)
    total DOUBLE = (CASE WHEN isfinite(p1) THEN p1 ELSE p2 END)

watermark
  highest t of the whole stream - 0 seconds

sinks
  none

stream local
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 3 columns
  view (positions are those of the full schema): SOME [0 v, 2 t]
