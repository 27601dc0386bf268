SELECT sum(n) AS a, avg(n) AS b, count(n) AS c, sum(n) + count(*) AS d FROM s
----
query
reads: stream s (generator, json), 1 of its 14 columns: n
keeps: the result so far of all rows, for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := agg0, b := agg1, c := agg2, d := (agg0 + agg3)
    Aggregate by [] compute [agg0 := sum(n), agg1 := avg(n), agg2 := count(n), agg3 := count(*)]
      StreamScan s shared_required_schema=SOME [5 n]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [5 n]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none partials=3
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DECIMAL(38,0) = sum(c5); merged by sum(p1)
    p2 BIGINT = count(c5); merged by sum(p2)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    a BIGINT = (CAST(p1 AS BIGINT))
    b DOUBLE = (CASE WHEN p2 > 0 THEN CAST(p1 AS DOUBLE) / p2 END)
    c BIGINT = (p2)
    d BIGINT = add((CAST(p1 AS BIGINT)), p0)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [5 n]
