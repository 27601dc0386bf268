SELECT k, collect_list(id) AS ids, listagg(DISTINCT k, ', ') WITHIN GROUP (ORDER BY k DESC) AS names, percentile(temp, array(0.5, 0.99)) AS p, approx_count_distinct(n) AS d, first(id) IGNORE NULLS AS f FROM s GROUP BY k
----
query
reads: stream s (generator, json), 4 of its 14 columns: id, temp, k, n
keeps: the result so far for each group (1 key), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, ids := agg0, names := agg1, p := agg2, d := agg3, f := agg4
    Aggregate by [k] compute [agg0 := collect_list(id), agg1 := listagg(distinct desc k, ', '), agg2 := percentile(temp, array(0.5, 0.99)), agg3 := approx_count_distinct(n, 9), agg4 := first(ignore nulls id)]
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 3 k, 5 n]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 3 k, 5 n]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0 partials=6
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=6

ring 0 (in the tasks that read the stream)
  filter: none
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 ARRAY<STRUCT<t: BIGINT, v: INT>> = list_sort(list(struct_pack(t := _t, v := c0)) FILTER (WHERE c0 IS NOT NULL)); merged by list_sort(flatten(list(p1) FILTER (WHERE p1 IS NOT NULL)))
    p2 ARRAY<STRING> = list_sort(list(DISTINCT c3) FILTER (WHERE c3 IS NOT NULL)); merged by list_sort(list_distinct(flatten(list(p2) FILTER (WHERE p2 IS NOT NULL))))
    p3 ARRAY<STRUCT<v: DOUBLE, n: BIGINT>> = hr_counts(list(struct_pack(v := c1, n := CAST(1 AS BIGINT))) FILTER (WHERE c1 IS NOT NULL)); merged by hr_counts(flatten(list(p3) FILTER (WHERE p3 IS NOT NULL)))
    p4 BINARY = hr_sketch_numbers(list(CAST(c5 AS BIGINT)) FILTER (WHERE c5 IS NOT NULL), 9); merged by hr_merge_sketches(list(p4) FILTER (WHERE p4 IS NOT NULL))
    p5 STRUCT<t: BIGINT, v: INT> = min(struct_pack(t := _t, v := c0)) FILTER (WHERE _t IS NOT NULL AND c0 IS NOT NULL); merged by min(p5)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    k STRING = k0
    ids ARRAY<INT> = (coalesce(list_transform(p1, lambda e: e.v), []::INTEGER[]))
    names STRING = (array_to_string(list_reverse(p2), ', '))
    p ARRAY<DOUBLE> = (hr_percentiles(p3, ['0.5'::DOUBLE, '0.99'::DOUBLE], False))
    d BIGINT = (hr_distinct(p4))
    f INT = ((p5).v)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 3 k, 5 n]
