SELECT count(*) FROM s
----
query
reads: stream s (generator, json), none of its 14 columns, only the number of rows
keeps: the result so far of all rows, for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project count(1) := agg0
    Aggregate by [] compute [agg0 := count(*)]
      StreamScan s shared_required_schema=NONE

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=NONE
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=none partials=1
  r2 := PhysicalBridge(r1) lane=pipeline
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on change columns=1

ring 0 (in the tasks that read the stream)
  filter: none
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  one lane; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: on change (implied: without a window a group never closes)
  having: none
  outputs:
    count(1) BIGINT = p0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): NONE
