SELECT k, first(temp) AS a, last(temp) AS b FROM s GROUP BY k
----
query
reads: stream s (generator, json), 3 of its 14 columns: temp, k, ts
keeps: the result so far for each group (1 key), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, a := agg0, b := agg1
    Aggregate by [k] compute [agg0 := first(temp), agg1 := last(temp)]
      StreamScan s shared_required_schema=SOME [1 temp, 3 k, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 3 k, 13 ts]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0 partials=3
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 STRUCT<t: BIGINT, v: DOUBLE, z: BOOLEAN> = min(struct_pack(t := _t, v := c1, z := NOT signbit(c1))) FILTER (WHERE _t IS NOT NULL); merged by min(p1)
    p2 STRUCT<t: BIGINT, v: DOUBLE, z: BOOLEAN> = max(struct_pack(t := _t, v := c1, z := NOT signbit(c1))) FILTER (WHERE _t IS NOT NULL); merged by max(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    k STRING = k0
    a DOUBLE = ((p1).v)
    b DOUBLE = ((p2).v)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 3 k, 13 ts]
