CREATE PIPELINE p INTO out, other AS SELECT k, count(*) AS n FROM s GROUP BY k
----
pipeline p
reads: stream s (generator, json), 1 of its 14 columns: k
keeps: the result so far for each group (1 key), for as long as the pipeline exists
guarantees: sink out: exactly once while the process lives; kept in memory only; sink other: exactly once while the process lives; kept in memory only
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, n := agg0
    Aggregate by [k] compute [agg0 := count(*)]
      StreamScan s shared_required_schema=SOME [3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0 partials=1
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=2
  r4 := PhysicalSink(r3) sink=out type=memory staged_by=lanes guarantee=exactly once while the process lives; kept in memory only
  r5 := PhysicalSink(r3) sink=other type=memory staged_by=lanes guarantee=exactly once while the process lives; kept in memory only
  r6 := PhysicalCommit(r4, r5) waits_for=all tasks and lanes

ring 0 (in the tasks that read the stream)
  filter: none
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
  having: none
  outputs:
    k STRING = k0
    n BIGINT = p0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  out: memory, exactly once while the process lives; kept in memory only
  other: memory, exactly once while the process lives; kept in memory only
  commit: when all tasks and lanes of the epoch have delivered its barrier

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k]
