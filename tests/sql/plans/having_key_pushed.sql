SELECT k, count(*) AS n FROM s GROUP BY k HAVING k <> 'x' AND n > 1
----
query
reads: stream s (generator, json), 1 of its 14 columns: k
keeps: the result so far for each group (1 key), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, n := agg0
    Filter (agg0 > 1)
      Aggregate by [k] compute [agg0 := count(*)]
        Filter (k != 'x')
          StreamScan s shared_required_schema=SOME [3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k]
  r1 := PhysicalFilter(r0) ring=0 where=(c3 <> 'x')
  r2 := PhysicalPartialAggregate(r1) ring=0 keys=k0 partials=1
  r3 := PhysicalBridge(r2) lane=(pipeline, hash(k0))
  r4 := PhysicalMergeAggregate(r3) ring=1 emit=on change having=(p0 > 1::BIGINT) columns=2

ring 0 (in the tasks that read the stream)
  filter: (c3 <> 'x')
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: (p0 > 1::BIGINT)
  outputs:
    k STRING = k0
    n BIGINT = p0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k]
