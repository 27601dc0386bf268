SELECT window.start, kind, count(*) AS n FROM (SELECT ts, 'a' AS kind FROM s WHERE ok UNION ALL (SELECT ts, k FROM s UNION ALL SELECT * FROM (SELECT ts, upper(k) FROM s))) GROUP BY window(ts, '1 minute'), kind
----
query
reads: stream s (generator, json), 3 of its 14 columns: k, ok, ts
keeps: the result so far for each group (1 key) and open window, until the watermark closes the window (tumble 1 minute)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project start := window.start, kind, n := agg0
    Aggregate by [window, kind := case when (branch = 0) then 'a' when (branch = 1) then k else upper(k) end] compute [agg0 := count(*)]
      AssignWindow tumble 1 minute on ts
        Filter case when (branch = 0) then ok when (branch = 1) then true else true end
          Generate branch := each of array(0, 1, 2)
            StreamScan s shared_required_schema=SOME [3 k, 4 ok, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k, 4 ok, 13 ts]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 INT outer=no
  r2 := PhysicalFilter(r1) ring=0 where=CASE WHEN (c14 = 0::INTEGER) THEN c4 WHEN (c14 = 1::INTEGER) THEN TRUE ELSE TRUE END
  r3 := PhysicalPartialAggregate(r2) ring=0 keys=k0 window=tumble 1 minute partials=1
  r4 := PhysicalBridge(r3) lane=(pipeline, hash(k0))
  r5 := PhysicalMergeAggregate(r4) ring=1 emit=on window close columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of:
    c14 INT = CAST([0::INTEGER, 1::INTEGER, 2::INTEGER] AS INTEGER[])
  filter of the made rows: CASE WHEN (c14 = 0::INTEGER) THEN c4 WHEN (c14 = 1::INTEGER) THEN TRUE ELSE TRUE END
  window: tumble 1 minute
  keys:
    k0 STRING = CASE WHEN (c14 = 0::INTEGER) THEN 'a' WHEN (c14 = 1::INTEGER) THEN c3 ELSE CASE WHEN strlen(c3) > length(c3) THEN hr_upper(c3) ELSE upper(c3) END END
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: none
  outputs:
    start TIMESTAMP = make_timestamptz(window_start)
    kind STRING = k0
    n BIGINT = p0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k, 4 ok, 13 ts]
