SELECT * FROM (SELECT window_end, k, ok, dense_rank() OVER (PARTITION BY window_end, ok ORDER BY sum(temp) DESC NULLS FIRST, k) AS r FROM CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 1 HOUR) GROUP BY window_start, window_end, k, ok HAVING count(*) > 1) WHERE r < 3
----
query
reads: stream s (generator, json), 4 of its 14 columns: temp, k, ok, ts
keeps: the result so far for each group (2 keys) and open window, until the watermark closes the window (cumulate 1 minute up to 1 hour)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project window_end, k, ok, r := rank0
    Filter (rank0 < 3)
      Rank rank0 := dense_rank() over (partition by window_end, ok order by agg0 desc nulls first, k)
        Filter (agg1 > 1)
          Aggregate by [window_start, window_end, k, ok] compute [agg0 := sum(temp), agg1 := count(*)]
            AssignWindow cumulate 1 minute up to 1 hour on ts
              StreamScan s shared_required_schema=SOME [1 temp, 3 k, 4 ok, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 3 k, 4 ok, 13 ts]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0, k1 window=cumulate 1 minute up to 1 hour partials=3
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k1))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on window close having=(p0 > 1::BIGINT) ranks=1 keeps=(r0 < 3::INTEGER) columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  window: cumulate 1 minute up to 1 hour
  keys:
    k0 STRING = c3
    k1 BOOLEAN = c4
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DOUBLE = fsum(c1); merged by fsum(p1)
    p2 DOUBLE = sum(c1); merged by sum(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k1; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: (p0 > 1::BIGINT)
  ranks:
    r0 INT = dense_rank() OVER (PARTITION BY window_start, window_end, k1 ORDER BY (CASE WHEN isfinite(p1) THEN p1 ELSE p2 END) DESC NULLS FIRST, k0 ASC NULLS FIRST)
  keeps: (r0 < 3::INTEGER)
  outputs:
    window_end TIMESTAMP = make_timestamptz(window_end)
    k STRING = k0
    ok BOOLEAN = k1
    r INT = r0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 3 k, 4 ok, 13 ts]
