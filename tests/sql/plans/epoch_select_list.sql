-- any host
CREATE PIPELINE p INTO out WITH (host = 'epoch') AS
    SELECT date_format(window.start, 'EEE HH:mm') AS d, k, format_number(avg(id), 2) AS x FROM s
    GROUP BY window(ts, '1 minute'), k HAVING count(*) > 3
----
pipeline p
reads: stream s (generator, json), 3 of its 14 columns: id, k, ts
keeps: the result so far for each group (1 key) and open window, until the watermark closes the window (tumble 1 minute)
guarantees: sink out: exactly once while the process lives; kept in memory only
host: epoch (the option host = 'epoch')

logical plan
  Project _k0 := window, _k1 := k, _a0 := agg0, _a1 := agg1
    Filter (agg1 > 3)
      Aggregate by [window, k] compute [agg0 := avg(id), agg1 := count(*)]
        AssignWindow tumble 1 minute on ts
          StreamScan s shared_required_schema=SOME [0 id, 3 k, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k, 13 ts]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0 window=tumble 1 minute partials=3
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on window close having=(p0 > 3::BIGINT) columns=4
  r4 := PhysicalSparkQuery(r3) in=commit staged=[_k0, _k1, _a0, _a1] sql=SELECT date_format(_k0.`start`, 'EEE HH:mm') AS `d`, _k1 AS `k`, format_number(_a0, 2) AS `x` FROM _groups
  r5 := PhysicalSink(r4) sink=out type=memory staged_by=query guarantee=exactly once while the process lives; kept in memory only
  r6 := PhysicalCommit(r5) waits_for=all tasks and lanes

ring 0 (in the tasks that read the stream)
  filter: none
  window: tumble 1 minute
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DECIMAL(38,0) = sum(c0); merged by sum(p1)
    p2 BIGINT = count(c0); merged by sum(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: when the watermark closes a window
  having: (p0 > 3::BIGINT)
  outputs:
    _k0 STRUCT<start: TIMESTAMP, end: TIMESTAMP> = struct_pack("start" := make_timestamptz(window_start), "end" := make_timestamptz(window_end))
    _k1 STRING = k0
    _a0 DOUBLE = (CASE WHEN p2 > 0 THEN CAST(p1 AS DOUBLE) / p2 END)
    _a1 BIGINT = p0

spark
  in the commit of every epoch, over the rows that the rings staged:
    SELECT date_format(_k0.`start`, 'EEE HH:mm') AS `d`, _k1 AS `k`, format_number(_a0, 2) AS `x` FROM _groups
  reads _groups (_k0, _k1, _a0, _a1)
  not checked: Spark checks it when the pipeline is created

watermark
  highest ts of the whole stream - 10 seconds

sinks
  out: memory, exactly once while the process lives; kept in memory only
  commit: when all tasks and lanes of the epoch have delivered its barrier, and the Spark query has run

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k, 13 ts]
