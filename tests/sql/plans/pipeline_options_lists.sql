CREATE PIPELINE p INTO out WITH (max_group_values = 500) AS SELECT k, collect_list(id) AS ids FROM s GROUP BY k
----
pipeline p
reads: stream s (generator, json), 2 of its 14 columns: id, k
keeps: the result so far for each group (1 key), for as long as the pipeline exists
guarantees: sink out: exactly once while the process lives; kept in memory only
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, ids := agg0
    Aggregate by [k] compute [agg0 := collect_list(id)]
      StreamScan s shared_required_schema=SOME [0 id, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0 partials=2
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=2
  r4 := PhysicalSink(r3) sink=out type=memory staged_by=lanes guarantee=exactly once while the process lives; kept in memory only
  r5 := PhysicalCommit(r4) waits_for=all tasks and lanes

ring 0 (in the tasks that read the stream)
  filter: none
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 ARRAY<STRUCT<t: BIGINT, v: INT>> = list_sort(list(struct_pack(t := _t, v := c0)) FILTER (WHERE c0 IS NOT NULL)); merged by list_sort(flatten(list(p1) FILTER (WHERE p1 IS NOT NULL)))

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  limit: 500 values in a list of a group
  having: none
  outputs:
    k STRING = k0
    ids ARRAY<INT> = (coalesce(list_transform(p1, lambda e: e.v), []::INTEGER[]))

watermark
  highest ts of the whole stream - 10 seconds

sinks
  out: memory, exactly once while the process lives; kept in memory only
  commit: when all tasks and lanes of the epoch have delivered its barrier

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k]
