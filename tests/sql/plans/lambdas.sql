SELECT transform(tags, (x, i) -> concat(x, i)) AS a, filter(tags, x -> x <> k) AS b, exists(tags, x -> x = 'a') AS c, aggregate(tags, 0, (n, x) -> n + length(x)) AS d FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: k, tags
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := transform(tags, (x, i) -> concat(x, cast(i as STRING))), b := filter(tags, (x) -> (x != k)), c := exists(tags, (x) -> (x = 'a')), d := aggregate(tags, 0, (n, x) -> (n + length(x)))
    StreamScan s shared_required_schema=SOME [3 k, 9 tags]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k, 9 tags]
  r1 := PhysicalProject(r0) ring=0 columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    a ARRAY<STRING> = list_transform(c9, lambda v_0_0, v_0_1: ((v_0_0 || CAST(CAST(v_0_1 - 1 AS INTEGER) AS VARCHAR))))
    b ARRAY<STRING> = list_filter(c9, lambda v_0_0: ((v_0_0 <> c3)))
    c BOOLEAN = list_transform([list_transform(c9, lambda v_0_0: ((v_0_0 = 'a')))], lambda x_2: CASE WHEN x_2 IS NULL THEN NULL WHEN list_contains(x_2, TRUE) THEN TRUE WHEN len(list_filter(x_2, lambda x_1: x_1 IS NULL)) > 0 THEN NULL ELSE FALSE END)[1]
    d INT = list_reduce(c9, lambda v_0_0, v_0_1: (add(v_0_0, CAST(length(v_0_1) AS INTEGER))), 0::INTEGER)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k, 9 tags]
