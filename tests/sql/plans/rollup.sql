SELECT k, id, grouping(k) AS g, grouping_id() AS gi, count(*) AS n FROM s GROUP BY ROLLUP(k, id)
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, k
keeps: the result so far for each group (3 keys), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, id, g := case when (grouping set in (2)) then 1 else 0 end, gi := case when (grouping set in (2)) then 3 else case when (grouping set in (1)) then 1 else 0 end end, n := agg0
    Aggregate by [k := case when (grouping set in (2)) then null else k end, id := case when (grouping set in (1, 2)) then null else id end, grouping set] compute [agg0 := count(*)]
      Generate grouping set := each of array(0, 1, 2)
        StreamScan s shared_required_schema=SOME [0 id, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 INT outer=no
  r2 := PhysicalPartialAggregate(r1) ring=0 keys=k0, k1, k2 partials=1
  r3 := PhysicalBridge(r2) lane=(pipeline, hash(k0, k1, k2))
  r4 := PhysicalMergeAggregate(r3) ring=1 emit=on change columns=5

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of:
    c14 INT = CAST([0::INTEGER, 1::INTEGER, 2::INTEGER] AS INTEGER[])
  keys:
    k0 STRING = CASE WHEN (c14 IN (2::INTEGER)) THEN CAST(NULL AS VARCHAR) ELSE c3 END
    k1 INT = CASE WHEN (c14 IN (1::INTEGER, 2::INTEGER)) THEN CAST(NULL AS INTEGER) ELSE c0 END
    k2 INT = c14
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0, k1, k2; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    k STRING = k0
    id INT = k1
    g TINYINT = CASE WHEN (k2 IN (2::INTEGER)) THEN 1::TINYINT ELSE 0::TINYINT END
    gi BIGINT = CASE WHEN (k2 IN (2::INTEGER)) THEN 3::BIGINT ELSE CASE WHEN (k2 IN (1::INTEGER)) THEN 1::BIGINT ELSE 0::BIGINT END END
    n BIGINT = p0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k]
