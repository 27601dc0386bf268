SELECT window.start, k, sum(temp) AS total FROM s GROUP BY window(ts, '1 minute'), CUBE(k, ok) HAVING grouping(ok) = 1
----
query
reads: stream s (generator, json), 4 of its 14 columns: temp, k, ok, ts
keeps: the result so far for each group (3 keys) and open window, until the watermark closes the window (tumble 1 minute)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project start := window.start, k, total := agg0
    Aggregate by [window, k := case when (grouping set in (2, 3)) then null else k end, ok := case when (grouping set in (1, 3)) then null else ok end, grouping set] compute [agg0 := sum(temp)]
      AssignWindow tumble 1 minute on ts
        Filter (cast(case when (grouping set in (1, 3)) then 1 else 0 end as INT) = 1)
          Generate grouping set := each of array(0, 1, 2, 3)
            StreamScan s shared_required_schema=SOME [1 temp, 3 k, 4 ok, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 3 k, 4 ok, 13 ts]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 INT outer=no
  r2 := PhysicalFilter(r1) ring=0 where=(CAST(CASE WHEN (c14 IN (1::INTEGER, 3::INTEGER)) THEN 1::TINYINT ELSE 0::TINYINT END AS INTEGER) = 1::INTEGER)
  r3 := PhysicalPartialAggregate(r2) ring=0 keys=k0, k1, k2 window=tumble 1 minute partials=3
  r4 := PhysicalBridge(r3) lane=(pipeline, hash(k0, k1, k2))
  r5 := PhysicalMergeAggregate(r4) ring=1 emit=on window close columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of:
    c14 INT = CAST([0::INTEGER, 1::INTEGER, 2::INTEGER, 3::INTEGER] AS INTEGER[])
  filter of the made rows: (CAST(CASE WHEN (c14 IN (1::INTEGER, 3::INTEGER)) THEN 1::TINYINT ELSE 0::TINYINT END AS INTEGER) = 1::INTEGER)
  window: tumble 1 minute
  keys:
    k0 STRING = CASE WHEN (c14 IN (2::INTEGER, 3::INTEGER)) THEN CAST(NULL AS VARCHAR) ELSE c3 END
    k1 BOOLEAN = CASE WHEN (c14 IN (1::INTEGER, 3::INTEGER)) THEN CAST(NULL AS BOOLEAN) ELSE c4 END
    k2 INT = c14
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DOUBLE = fsum(c1); merged by fsum(p1)
    p2 DOUBLE = sum(c1); merged by sum(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0, k1, k2; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: none
  outputs:
    start TIMESTAMP = make_timestamptz(window_start)
    k STRING = k0
    total DOUBLE = (CASE WHEN isfinite(p1) THEN p1 ELSE p2 END)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 3 k, 4 ok, 13 ts]
