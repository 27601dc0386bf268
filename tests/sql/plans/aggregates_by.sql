SELECT max_by(k, temp) AS a, min_by(id, ts) AS b FROM s
----
query
reads: stream s (generator, json), 4 of its 14 columns: id, temp, k, ts
keeps: the result so far of all rows, for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := agg0, b := agg1
    Aggregate by [] compute [agg0 := max_by(k, temp), agg1 := min_by(id, ts)]
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 3 k, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 3 k, 13 ts]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none partials=3
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 STRUCT<k: DOUBLE, v: STRING> = max(struct_pack(k := c1, v := c3)) FILTER (WHERE c1 IS NOT NULL); merged by max(p1)
    p2 STRUCT<k: TIMESTAMP, v: INT> = min(struct_pack(k := c13, v := c0)) FILTER (WHERE c13 IS NOT NULL); merged by min(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    a STRING = ((p1).v)
    b INT = ((p2).v)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 3 k, 13 ts]
