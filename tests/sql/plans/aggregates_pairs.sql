SELECT corr(temp, hum) AS a, regr_slope(temp, hum) AS b, kurtosis(temp) AS c, avg(DISTINCT price) AS d, try_sum(n) AS e, count(id, k) AS f FROM s
----
query
reads: stream s (generator, json), 6 of its 14 columns: id, temp, hum, k, n, price
keeps: the result so far of all rows, for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := agg0, b := agg1, c := agg2, d := agg3, e := agg4, f := agg5
    Aggregate by [] compute [agg0 := corr(temp, cast(hum as DOUBLE)), agg1 := regr_slope(temp, cast(hum as DOUBLE)), agg2 := kurtosis(temp), agg3 := avg(distinct price), agg4 := try_sum(n), agg5 := count(*) filter (where (isnotnull(k) and isnotnull(id)))]
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k, 5 n, 6 price]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k, 5 n, 6 price]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none partials=6
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=6

ring 0 (in the tasks that read the stream)
  filter: none
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 STRUCT<n: DOUBLE, x: DOUBLE, y: DOUBLE, xx: DOUBLE, yy: DOUBLE, xy: DOUBLE> = hr_pairs(list(struct_pack(x := CAST(c2 AS DOUBLE), y := c1)) FILTER (WHERE c1 IS NOT NULL AND CAST(c2 AS DOUBLE) IS NOT NULL)); merged by hr_merge_pairs(list(p1) FILTER (WHERE p1 IS NOT NULL))
    p2 STRUCT<n: DOUBLE, m: DOUBLE, s: DOUBLE, c: DOUBLE, q: DOUBLE> = hr_moments(list(c1) FILTER (WHERE c1 IS NOT NULL)); merged by hr_merge_moments(list(p2) FILTER (WHERE p2 IS NOT NULL))
    p3 ARRAY<DECIMAL(10,2)> = list_sort(list(DISTINCT c6) FILTER (WHERE c6 IS NOT NULL)); merged by list_sort(list_distinct(flatten(list(p3) FILTER (WHERE p3 IS NOT NULL))))
    p4 DECIMAL(38,0) = sum(c5); merged by sum(p4)
    p5 BIGINT = count(CASE WHEN ((c3 IS NOT NULL) AND (c0 IS NOT NULL)) THEN 1 END); merged by sum(p5)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    a DOUBLE = (CASE WHEN (p1).n > 1 AND (p1).xx <> 0 AND (p1).yy <> 0 THEN (p1).xy / sqrt((p1).xx * (p1).yy) END)
    b DOUBLE = (CASE WHEN (p1).n > 1 AND (p1).xx <> 0 THEN (p1).xy / (p1).xx END)
    c DOUBLE = (CASE WHEN (p2).s <> 0 THEN (p2).n * (p2).q / ((p2).s * (p2).s) - 3 END)
    d DECIMAL(14,6) = (CASE WHEN CAST(len(p3) AS HUGEINT) > 0 THEN list_transform([list_transform([list_transform([CAST(replace(CAST(list_aggregate(p3, 'sum') AS VARCHAR), '.', '') AS HUGEINT)], lambda d: CASE WHEN abs(d // CAST(len(p3) AS HUGEINT)) >= 10000000000::HUGEINT THEN error('ARITHMETIC_OVERFLOW') ELSE (d // CAST(len(p3) AS HUGEINT) * 10000 + CASE WHEN d < 0 THEN -((2 * abs(d % CAST(len(p3) AS HUGEINT)) * 10000 + CAST(len(p3) AS HUGEINT)) // (2 * CAST(len(p3) AS HUGEINT))) ELSE ((2 * abs(d % CAST(len(p3) AS HUGEINT)) * 10000 + CAST(len(p3) AS HUGEINT)) // (2 * CAST(len(p3) AS HUGEINT))) END) END)[1]], lambda d: CASE WHEN abs(d) >= 100000000000000::HUGEINT THEN error('ARITHMETIC_OVERFLOW') ELSE d END)[1]], lambda d: CAST(CASE WHEN d < 0 THEN '-' ELSE '' END || left((repeat('0', 6 - length(CAST(abs(d) AS VARCHAR))) || CAST(abs(d) AS VARCHAR)), -6) || '.' || right((repeat('0', 6 - length(CAST(abs(d) AS VARCHAR))) || CAST(abs(d) AS VARCHAR)), 6) AS DECIMAL(14,6)))[1] END)
    e BIGINT = (TRY_CAST(p4 AS BIGINT))
    f BIGINT = (p5)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 2 hum, 3 k, 5 n, 6 price]
