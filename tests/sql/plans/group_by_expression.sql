SELECT upper(k) AS u, id % 10 AS b, count(*) AS n FROM s GROUP BY upper(k), id % 10
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, k
keeps: the result so far for each group (2 keys), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project u := upper(k), b := (id % 10), n := agg0
    Aggregate by [upper(k), (id % 10)] compute [agg0 := count(*)]
      StreamScan s shared_required_schema=SOME [0 id, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0, k1 partials=1
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0, k1))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  keys:
    k0 STRING = CASE WHEN strlen(c3) > length(c3) THEN hr_upper(c3) ELSE upper(c3) END
    k1 INT = (c0 % 10::INTEGER)
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0, k1; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    u STRING = k0
    b INT = k1
    n BIGINT = p0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k]
