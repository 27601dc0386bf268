SELECT k, sum(price) AS total FROM s GROUP BY k HAVING total > 100
----
query
reads: stream s (generator, json), 2 of its 14 columns: k, price
keeps: the result so far for each group (1 key), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, total := agg0
    Filter (agg0 > 100)
      Aggregate by [k] compute [agg0 := sum(price)]
        StreamScan s shared_required_schema=SOME [3 k, 6 price]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k, 6 price]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0 partials=2
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change having=((CAST(p1 AS DECIMAL(20,2))) > '100'::DECIMAL(20,2)) columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DECIMAL(38,2) = sum(c6); merged by sum(p1)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: ((CAST(p1 AS DECIMAL(20,2))) > '100'::DECIMAL(20,2))
  outputs:
    k STRING = k0
    total DECIMAL(20,2) = (CAST(p1 AS DECIMAL(20,2)))

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k, 6 price]
