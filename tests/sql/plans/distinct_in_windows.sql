SELECT DISTINCT window_start, window_end, k FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)
----
query
reads: stream s (generator, json), 2 of its 14 columns: k, ts
keeps: the result so far for each group (1 key) and open window, until the watermark closes the window (tumble 1 minute)
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project window_start, window_end, k
    Distinct [window_start, window_end, k]
      AssignWindow tumble 1 minute on ts
        StreamScan s shared_required_schema=SOME [3 k, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k, 13 ts]
  r1 := PhysicalPartialAggregate(r0) ring=0 keys=k0 window=tumble 1 minute partials=1
  r2 := PhysicalBridge(r1) lane=(pipeline, hash(k0))
  r3 := PhysicalMergeAggregate(r2) ring=1 emit=on first occurrence columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  window: tumble 1 minute
  keys:
    k0 STRING = c3
  partials:
    p0 BIGINT = count(*); merged by sum(p0)

bridge (from the tasks to the state; a lane is one part of a pipeline's groups)
  lanes by hash of k0; partial states
  order within an epoch: events, watermark, barrier, end
  barriers: each lane waits for all tasks of the epoch

ring 1 (in Spark's state store)
  emit: a row at its first occurrence
  kept: until the watermark passes its window
  having: none
  outputs:
    window_start TIMESTAMP = make_timestamptz(window_start)
    window_end TIMESTAMP = make_timestamptz(window_end)
    k STRING = k0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k, 13 ts]
