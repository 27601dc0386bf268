SELECT count(*) AS n, max(tag) AS last FROM (SELECT explode(tags) AS tag FROM s)
----
query
reads: stream s (generator, json), 1 of its 14 columns: tags
keeps: the result so far of all rows, for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project n := agg0, last := agg1
    Aggregate by [] compute [agg0 := count(*), agg1 := max(tag)]
      Generate tag := each of tags
        StreamScan s shared_required_schema=SOME [9 tags]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [9 tags]
  r1 := PhysicalGenerate(r0) ring=0 makes=c14 STRING outer=no
  r2 := PhysicalPartialAggregate(r1) ring=0 keys=none partials=2
  r3 := PhysicalBridge(r2) lane=pipeline
  r4 := PhysicalMergeAggregate(r3) ring=1 emit=on change columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  rows made of the elements of:
    c14 STRING = c9
  partials:
    p0 BIGINT = count(*); merged by sum(p0)
    p1 STRING = max(c14); merged by max(p1)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    n BIGINT = p0
    last STRING = (p1)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [9 tags]
