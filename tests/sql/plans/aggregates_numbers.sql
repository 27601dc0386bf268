SELECT sum(id) AS a, sum(temp) AS b, sum(price) AS c, avg(id) AS d, avg(temp) AS e, avg(price) AS f, min(hum) AS g, max(k) AS h FROM s
----
query
reads: stream s (generator, json), 5 of its 14 columns: id, temp, hum, k, price
keeps: the result so far of all rows, for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := agg0, b := agg1, c := agg2, d := agg3, e := agg4, f := agg5, g := agg6, h := agg7
    Aggregate by [] compute [agg0 := sum(id), agg1 := sum(temp), agg2 := sum(price), agg3 := avg(id), agg4 := avg(temp), agg5 := avg(price), agg6 := min(hum), agg7 := max(k)]
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k, 6 price]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k, 6 price]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none partials=10
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=8

ring 0 (in the tasks that read the stream)
  filter: none
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DECIMAL(38,0) = sum(c0); merged by sum(p1)
    p2 DOUBLE = fsum(c1); merged by fsum(p2)
    p3 DOUBLE = sum(c1); merged by sum(p3)
    p4 DECIMAL(38,2) = sum(c6); merged by sum(p4)
    p5 BIGINT = count(c0); merged by sum(p5)
    p6 BIGINT = count(c1); merged by sum(p6)
    p7 BIGINT = count(c6); merged by sum(p7)
    p8 FLOAT = min(c2); merged by min(p8)
    p9 STRING = max(c3); merged by max(p9)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    a BIGINT = (CAST(p1 AS BIGINT))
    b DOUBLE = (CASE WHEN isfinite(p2) THEN p2 ELSE p3 END)
    c DECIMAL(20,2) = (CAST(p4 AS DECIMAL(20,2)))
    d DOUBLE = (CASE WHEN p5 > 0 THEN CAST(p1 AS DOUBLE) / p5 END)
    e DOUBLE = (CASE WHEN p6 > 0 THEN (CASE WHEN isfinite(p2) THEN p2 ELSE p3 END) / p6 END)
    f DECIMAL(14,6) = (CASE WHEN CAST(p7 AS HUGEINT) > 0 THEN list_transform([list_transform([list_transform([CAST(replace(CAST(p4 AS VARCHAR), '.', '') AS HUGEINT)], lambda d: CASE WHEN abs(d // CAST(p7 AS HUGEINT)) >= 10000000000::HUGEINT THEN error('ARITHMETIC_OVERFLOW') ELSE (d // CAST(p7 AS HUGEINT) * 10000 + CASE WHEN d < 0 THEN -((2 * abs(d % CAST(p7 AS HUGEINT)) * 10000 + CAST(p7 AS HUGEINT)) // (2 * CAST(p7 AS HUGEINT))) ELSE ((2 * abs(d % CAST(p7 AS HUGEINT)) * 10000 + CAST(p7 AS HUGEINT)) // (2 * CAST(p7 AS HUGEINT))) END) END)[1]], lambda d: CASE WHEN abs(d) >= 100000000000000::HUGEINT THEN error('ARITHMETIC_OVERFLOW') ELSE d END)[1]], lambda d: CAST(CASE WHEN d < 0 THEN '-' ELSE '' END || left((repeat('0', 6 - length(CAST(abs(d) AS VARCHAR))) || CAST(abs(d) AS VARCHAR)), -6) || '.' || right((repeat('0', 6 - length(CAST(abs(d) AS VARCHAR))) || CAST(abs(d) AS VARCHAR)), 6) AS DECIMAL(14,6)))[1] END)
    g FLOAT = (p8)
    h STRING = (p9)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 2 hum, 3 k, 6 price]
