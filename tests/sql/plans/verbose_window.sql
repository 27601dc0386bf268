-- verbose
SELECT window.start, k, sum(temp) AS t FROM (SELECT * FROM s WHERE 1 < 2) q WHERE k <> 'a' AND 1 + 1 = 2 GROUP BY window(ts, '1 minute'), k HAVING k > 'b' AND sum(temp) > 1
----
query
reads: stream s (generator, json), 3 of its 14 columns: temp, k, ts
keeps: the result so far for each group (1 key) and open window, until the watermark closes the window (tumble 1 minute)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project start := window.start, k, t := agg0
    Filter (agg0 > 1.0)
      Aggregate by [window, k] compute [agg0 := sum(temp)]
        AssignWindow tumble 1 minute on ts
          Filter ((k != 'a') and (k > 'b'))
            StreamScan s shared_required_schema=SOME [1 temp, 3 k, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 3 k, 13 ts]
  r1 := PhysicalFilter(r0) ring=0 where=((c3 <> 'a') AND (c3 > 'b'))
  r2 := PhysicalPartialAggregate(r1) ring=0 keys=k0 window=tumble 1 minute partials=3
  r3 := PhysicalBridge(r2) lane=(pipeline, hash(k0))
  r4 := PhysicalMergeAggregate(r3) ring=1 emit=on window close having=((CASE WHEN isfinite(p1) THEN p1 ELSE p2 END) > '1.0'::DOUBLE) columns=3

ring 0 (in the tasks that read the stream)
  filter: ((c3 <> 'a') AND (c3 > 'b'))
  window: tumble 1 minute
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DOUBLE = fsum(c1); merged by fsum(p1)
    p2 DOUBLE = sum(c1); merged by sum(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: ((CASE WHEN isfinite(p1) THEN p1 ELSE p2 END) > '1.0'::DOUBLE)
  outputs:
    start TIMESTAMP = make_timestamptz(window_start)
    k STRING = k0
    t DOUBLE = (CASE WHEN isfinite(p1) THEN p1 ELSE p2 END)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

rules
  fold_constants:
    Project start := window.start, k, t := agg0
      Filter ((k > 'b') and (agg0 > 1.0))
        Aggregate by [window, k] compute [agg0 := sum(temp)]
          AssignWindow tumble 1 minute on ts
            Filter (k != 'a')
              Project id, temp, hum, k, ok, n, price, day, pos, tags, attrs, raw, ... 2 more
                StreamScan s shared_required_schema=ALL (14 columns)
  inline_projections:
    Project start := window.start, k, t := agg0
      Filter ((k > 'b') and (agg0 > 1.0))
        Aggregate by [window, k] compute [agg0 := sum(temp)]
          AssignWindow tumble 1 minute on ts
            Filter (k != 'a')
              StreamScan s shared_required_schema=ALL (14 columns)
  merge_unions: no change
  push_down_filter:
    Project start := window.start, k, t := agg0
      Filter (agg0 > 1.0)
        Aggregate by [window, k] compute [agg0 := sum(temp)]
          AssignWindow tumble 1 minute on ts
            Filter ((k != 'a') and (k > 'b'))
              StreamScan s shared_required_schema=ALL (14 columns)
  prune_columns:
    Project start := window.start, k, t := agg0
      Filter (agg0 > 1.0)
        Aggregate by [window, k] compute [agg0 := sum(temp)]
          AssignWindow tumble 1 minute on ts
            Filter ((k != 'a') and (k > 'b'))
              StreamScan s shared_required_schema=SOME [1 temp, 3 k, 13 ts]
  split_aggregates:
    r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 3 k, 13 ts]
    r1 := PhysicalFilter(r0) ring=0 where=((c3 <> 'a') AND (c3 > 'b'))
    r2 := PhysicalPartialAggregate(r1) ring=0 keys=k0 window=tumble 1 minute partials=3
    r3 := PhysicalBridge(r2) lane=(pipeline, hash(k0))
    r4 := PhysicalMergeAggregate(r3) ring=1 emit=on window close having=((CASE WHEN isfinite(p1) THEN p1 ELSE p2 END) > '1.0'::DOUBLE) columns=3

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 3 k, 13 ts]
