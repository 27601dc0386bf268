SELECT window.start AS w, k, avg(temp) AS t FROM s GROUP BY window(ts, '1 minute'), k
----
query
reads: stream s (generator, json), 3 of its 14 columns: temp, k, ts
keeps: the result so far for each group (1 key) and open window, until the watermark closes the window (tumble 1 minute)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project w := window.start, k, t := agg0
    Aggregate by [window, k] compute [agg0 := avg(temp)]
      AssignWindow tumble 1 minute on ts
        StreamScan s shared_required_schema=SOME [1 temp, 3 k, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 3 k, 13 ts]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0 window=tumble 1 minute partials=4
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on window close columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  window: tumble 1 minute
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DOUBLE = fsum(c1); merged by fsum(p1)
    p2 DOUBLE = sum(c1); merged by sum(p2)
    p3 BIGINT = count(c1); merged by sum(p3)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: none
  outputs:
    w TIMESTAMP = make_timestamptz(window_start)
    k STRING = k0
    t DOUBLE = (CASE WHEN p3 > 0 THEN (CASE WHEN isfinite(p1) THEN p1 ELSE p2 END) / p3 END)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 3 k, 13 ts]
