SELECT count(DISTINCT k) AS a, count(DISTINCT temp) AS b FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: temp, k
keeps: the result so far of all rows, for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := agg0, b := agg1
    Aggregate by [] compute [agg0 := count(distinct k), agg1 := count(distinct temp)]
      StreamScan s shared_required_schema=SOME [1 temp, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 3 k]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none partials=3
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 ARRAY<STRING> = list_sort(list(DISTINCT c3) FILTER (WHERE c3 IS NOT NULL)); merged by list_sort(list_distinct(flatten(list(p1) FILTER (WHERE p1 IS NOT NULL))))
    p2 ARRAY<DOUBLE> = list_sort(list(DISTINCT (c1 + 0)) FILTER (WHERE c1 IS NOT NULL)); merged by list_sort(list_distinct(flatten(list(p2) FILTER (WHERE p2 IS NOT NULL))))

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    a BIGINT = (CAST(coalesce(len(p1), 0) AS BIGINT))
    b BIGINT = (CAST(coalesce(len(p2), 0) AS BIGINT))

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 3 k]
