SELECT upper(k) AS k FROM (SELECT DISTINCT k, n FROM s) WHERE n > 3
----
query
reads: stream s (generator, json), 2 of its 14 columns: k, n
keeps: the result so far for each group (2 keys), for as long as the pipeline exists
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k := upper(k)
    Distinct [k, n]
      Filter (n > 3)
        StreamScan s shared_required_schema=SOME [3 k, 5 n]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k, 5 n]
  r1 := PhysicalFilter(r0) ring=0 where=(c5 > 3::BIGINT)
  r2 := PhysicalPartialAggregate(r1) ring=0 keys=k0, k1 partials=1
  r3 := PhysicalBridge(r2) lane=(pipeline, hash(k0, k1))
  r4 := PhysicalMergeAggregate(r3) ring=1 emit=on first occurrence columns=1

ring 0 (in the tasks that read the stream)
  filter: (c5 > 3::BIGINT)
  keys:
    k0 STRING = c3
    k1 BIGINT = c5
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0, k1; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: a row at its first occurrence
  kept: until the pipeline ends
  having: none
  outputs:
    k STRING = CASE WHEN strlen(k0) > length(k0) THEN hr_upper(k0) ELSE upper(k0) END

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k, 5 n]
