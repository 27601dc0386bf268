SELECT count(*) FILTER (WHERE ok) AS a, sum(n) FILTER (WHERE temp > 0) AS b, count_if(temp > 30) AS c, bool_and(ok) AS d FROM s
----
query
reads: stream s (generator, json), 3 of its 14 columns: temp, ok, n
keeps: the result so far of all rows, for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := agg0, b := agg1, c := agg2, d := agg3
    Aggregate by [] compute [agg0 := count(*) filter (where ok), agg1 := sum(n) filter (where (temp > 0.0)), agg2 := count(*) filter (where (temp > 30.0)), agg3 := bool_and(ok)]
      StreamScan s shared_required_schema=SOME [1 temp, 4 ok, 5 n]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 4 ok, 5 n]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none partials=5
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 BIGINT = count(CASE WHEN c4 THEN 1 END); merged by sum(p1)
    p2 DECIMAL(38,0) = sum(CASE WHEN (c1 > '0.0'::DOUBLE) THEN c5 END); merged by sum(p2)
    p3 BIGINT = count(CASE WHEN (c1 > '30.0'::DOUBLE) THEN 1 END); merged by sum(p3)
    p4 BOOLEAN = bool_and(c4); merged by bool_and(p4)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    a BIGINT = (p1)
    b BIGINT = (CAST(p2 AS BIGINT))
    c BIGINT = (p3)
    d BOOLEAN = (p4)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 4 ok, 5 n]
