SELECT b, sum(t) AS total FROM (SELECT id % 4 AS b, temp * 2 AS t, ts FROM s WHERE ok) q WHERE t > 0 GROUP BY b
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, temp, ok
keeps: the result so far for each group (1 key), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project b, total := agg0
    Aggregate by [b := (id % 4)] compute [agg0 := sum((temp * 2.0))]
      Filter (ok and ((temp * 2.0) > 0.0))
        StreamScan s shared_required_schema=SOME [0 id, 1 temp, 4 ok]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 4 ok]
  r1 := PhysicalFilter(r0) ring=0 where=(c4 AND (multiply(c1, '2.0'::DOUBLE) > '0.0'::DOUBLE))
  r2 := PhysicalPartialAggregate(r1) ring=0 keys=k0 partials=3
  r3 := PhysicalBridge(r2) lane=(pipeline, hash(k0))
  r4 := PhysicalMergeAggregate(r3) ring=1 emit=on change columns=2

ring 0 (in the tasks that read the stream)
  filter: (c4 AND (multiply(c1, '2.0'::DOUBLE) > '0.0'::DOUBLE))
  keys:
    k0 INT = (c0 % 4::INTEGER)
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DOUBLE = fsum(multiply(c1, '2.0'::DOUBLE)); merged by fsum(p1)
    p2 DOUBLE = sum(multiply(c1, '2.0'::DOUBLE)); merged by sum(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    b INT = k0
    total DOUBLE = (CASE WHEN isfinite(p1) THEN p1 ELSE p2 END)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 4 ok]
