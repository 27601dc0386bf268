SELECT k, sum(id * 2 + 1) AS a, 100 * sum(n) / count(*) AS b FROM s GROUP BY k
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, k, n
keeps: the result so far for each group (1 key), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, a := agg0, b := (cast((agg1 * 100) as DOUBLE) / cast(agg2 as DOUBLE))
    Aggregate by [k] compute [agg0 := sum(((id * 2) + 1)), agg1 := sum(n), agg2 := count(*)]
      StreamScan s shared_required_schema=SOME [0 id, 3 k, 5 n]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k, 5 n]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0 partials=3
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DECIMAL(38,0) = sum(add(multiply(c0, 2::INTEGER), 1::INTEGER)); merged by sum(p1)
    p2 DECIMAL(38,0) = sum(c5); merged by sum(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    k STRING = k0
    a BIGINT = (CAST(p1 AS BIGINT))
    b DOUBLE = CASE WHEN (p0) IS NULL THEN NULL ELSE CASE WHEN CAST(p0 AS DOUBLE) = 0 AND CAST(multiply((CAST(p2 AS BIGINT)), 100::BIGINT) AS DOUBLE) IS NOT NULL THEN error('DIVIDE_BY_ZERO') ELSE CAST(multiply((CAST(p2 AS BIGINT)), 100::BIGINT) AS DOUBLE) / CAST(p0 AS DOUBLE) END END

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k, 5 n]
