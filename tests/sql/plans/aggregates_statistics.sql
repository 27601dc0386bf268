SELECT stddev(temp) AS a, variance(id) AS b, stddev_pop(hum) AS c, var_pop(price) AS d FROM s
----
query
reads: stream s (generator, json), 4 of its 14 columns: id, temp, hum, price
keeps: the result so far of all rows, for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := agg0, b := agg1, c := agg2, d := agg3
    Aggregate by [] compute [agg0 := stddev_samp(temp), agg1 := var_samp(cast(id as DOUBLE)), agg2 := stddev_pop(cast(hum as DOUBLE)), agg3 := var_pop(cast(price as DOUBLE))]
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 6 price]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 6 price]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none partials=5
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 STRUCT<n: DOUBLE, m: DOUBLE, s: DOUBLE> = CASE WHEN count(c1) > 0 THEN struct_pack(n := CAST(count(c1) AS DOUBLE), m := CASE WHEN count(c1) > count(CASE WHEN isfinite(c1) THEN c1 END) THEN 'nan'::DOUBLE ELSE avg(CASE WHEN isfinite(c1) THEN c1 END) END, s := CASE WHEN count(c1) > count(CASE WHEN isfinite(c1) THEN c1 END) THEN 'nan'::DOUBLE ELSE var_pop(CASE WHEN isfinite(c1) THEN c1 END) * CAST(count(c1) AS DOUBLE) END) END; merged by list_reduce(list(p1) FILTER (WHERE p1 IS NOT NULL), lambda a, b: struct_pack(n := a.n + b.n, m := a.m + (b.m - a.m) * b.n / (a.n + b.n), s := a.s + b.s + (b.m - a.m) * (b.m - a.m) * a.n * b.n / (a.n + b.n)))
    p2 STRUCT<n: DOUBLE, m: DOUBLE, s: DOUBLE> = CASE WHEN count(CAST(c0 AS DOUBLE)) > 0 THEN struct_pack(n := CAST(count(CAST(c0 AS DOUBLE)) AS DOUBLE), m := CASE WHEN count(CAST(c0 AS DOUBLE)) > count(CASE WHEN isfinite(CAST(c0 AS DOUBLE)) THEN CAST(c0 AS DOUBLE) END) THEN 'nan'::DOUBLE ELSE avg(CASE WHEN isfinite(CAST(c0 AS DOUBLE)) THEN CAST(c0 AS DOUBLE) END) END, s := CASE WHEN count(CAST(c0 AS DOUBLE)) > count(CASE WHEN isfinite(CAST(c0 AS DOUBLE)) THEN CAST(c0 AS DOUBLE) END) THEN 'nan'::DOUBLE ELSE var_pop(CASE WHEN isfinite(CAST(c0 AS DOUBLE)) THEN CAST(c0 AS DOUBLE) END) * CAST(count(CAST(c0 AS DOUBLE)) AS DOUBLE) END) END; merged by list_reduce(list(p2) FILTER (WHERE p2 IS NOT NULL), lambda a, b: struct_pack(n := a.n + b.n, m := a.m + (b.m - a.m) * b.n / (a.n + b.n), s := a.s + b.s + (b.m - a.m) * (b.m - a.m) * a.n * b.n / (a.n + b.n)))
    p3 STRUCT<n: DOUBLE, m: DOUBLE, s: DOUBLE> = CASE WHEN count(CAST(c2 AS DOUBLE)) > 0 THEN struct_pack(n := CAST(count(CAST(c2 AS DOUBLE)) AS DOUBLE), m := CASE WHEN count(CAST(c2 AS DOUBLE)) > count(CASE WHEN isfinite(CAST(c2 AS DOUBLE)) THEN CAST(c2 AS DOUBLE) END) THEN 'nan'::DOUBLE ELSE avg(CASE WHEN isfinite(CAST(c2 AS DOUBLE)) THEN CAST(c2 AS DOUBLE) END) END, s := CASE WHEN count(CAST(c2 AS DOUBLE)) > count(CASE WHEN isfinite(CAST(c2 AS DOUBLE)) THEN CAST(c2 AS DOUBLE) END) THEN 'nan'::DOUBLE ELSE var_pop(CASE WHEN isfinite(CAST(c2 AS DOUBLE)) THEN CAST(c2 AS DOUBLE) END) * CAST(count(CAST(c2 AS DOUBLE)) AS DOUBLE) END) END; merged by list_reduce(list(p3) FILTER (WHERE p3 IS NOT NULL), lambda a, b: struct_pack(n := a.n + b.n, m := a.m + (b.m - a.m) * b.n / (a.n + b.n), s := a.s + b.s + (b.m - a.m) * (b.m - a.m) * a.n * b.n / (a.n + b.n)))
    p4 STRUCT<n: DOUBLE, m: DOUBLE, s: DOUBLE> = CASE WHEN count(CAST(CAST(c6 AS VARCHAR) AS DOUBLE)) > 0 THEN struct_pack(n := CAST(count(CAST(CAST(c6 AS VARCHAR) AS DOUBLE)) AS DOUBLE), m := CASE WHEN count(CAST(CAST(c6 AS VARCHAR) AS DOUBLE)) > count(CASE WHEN isfinite(CAST(CAST(c6 AS VARCHAR) AS DOUBLE)) THEN CAST(CAST(c6 AS VARCHAR) AS DOUBLE) END) THEN 'nan'::DOUBLE ELSE avg(CASE WHEN isfinite(CAST(CAST(c6 AS VARCHAR) AS DOUBLE)) THEN CAST(CAST(c6 AS VARCHAR) AS DOUBLE) END) END, s := CASE WHEN count(CAST(CAST(c6 AS VARCHAR) AS DOUBLE)) > count(CASE WHEN isfinite(CAST(CAST(c6 AS VARCHAR) AS DOUBLE)) THEN CAST(CAST(c6 AS VARCHAR) AS DOUBLE) END) THEN 'nan'::DOUBLE ELSE var_pop(CASE WHEN isfinite(CAST(CAST(c6 AS VARCHAR) AS DOUBLE)) THEN CAST(CAST(c6 AS VARCHAR) AS DOUBLE) END) * CAST(count(CAST(CAST(c6 AS VARCHAR) AS DOUBLE)) AS DOUBLE) END) END; merged by list_reduce(list(p4) FILTER (WHERE p4 IS NOT NULL), lambda a, b: struct_pack(n := a.n + b.n, m := a.m + (b.m - a.m) * b.n / (a.n + b.n), s := a.s + b.s + (b.m - a.m) * (b.m - a.m) * a.n * b.n / (a.n + b.n)))

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    a DOUBLE = (CASE WHEN (p1).n > 1 THEN sqrt((p1).s / ((p1).n - 1)) END)
    b DOUBLE = (CASE WHEN (p2).n > 1 THEN (p2).s / ((p2).n - 1) END)
    c DOUBLE = (sqrt((p3).s / (p3).n))
    d DOUBLE = ((p4).s / (p4).n)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 2 hum, 6 price]
