SELECT tag, count(*) AS n, avg(temp) AS t FROM s LATERAL VIEW explode(tags) x AS tag WHERE temp > 0 GROUP BY tag
----
query
reads: stream s (generator, json), 2 of its 14 columns: temp, tags
keeps: the result so far for each group (1 key), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project tag, n := agg0, t := agg1
    Aggregate by [tag] compute [agg0 := count(*), agg1 := avg(temp)]
      Generate tag := each of tags
        Filter (temp > 0.0)
          StreamScan s shared_required_schema=SOME [1 temp, 9 tags]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp, 9 tags]
  r1 := PhysicalFilter(r0) ring=0 where=(c1 > '0.0'::DOUBLE)
  r2 := PhysicalGenerate(r1) ring=0 makes=c14 STRING outer=no
  r3 := PhysicalPartialAggregate(r2) ring=0 keys=k0 partials=4
  r4 := PhysicalBridge(r3) lane=(pipeline, hash(k0))
  r5 := PhysicalMergeAggregate(r4) ring=1 emit=on change columns=3

ring 0 (in the tasks that read the stream)
  filter: (c1 > '0.0'::DOUBLE)
  rows made of the elements of:
    c14 STRING = c9
  keys:
    k0 STRING = c14
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 DOUBLE = fsum(c1); merged by fsum(p1)
    p2 DOUBLE = sum(c1); merged by sum(p2)
    p3 BIGINT = count(c1); merged by sum(p3)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    tag STRING = k0
    n BIGINT = p0
    t DOUBLE = (CASE WHEN p3 > 0 THEN (CASE WHEN isfinite(p1) THEN p1 ELSE p2 END) / p3 END)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp, 9 tags]
