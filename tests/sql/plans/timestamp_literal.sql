SELECT id FROM s WHERE ts >= TIMESTAMP '2024-03-01 10:00:00' AND day < DATE '2024-04-01'
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, day, ts
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    Filter ((ts >= timestamp '2024-03-01 10:00:00Z') and (day < 2024-04-01))
      StreamScan s shared_required_schema=SOME [0 id, 7 day, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 7 day, 13 ts]
  r1 := PhysicalFilter(r0) ring=0 where=((c13 >= make_timestamptz(1709287200000000::BIGINT)) AND (c7 < DATE '2024-04-01'))
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: ((c13 >= make_timestamptz(1709287200000000::BIGINT)) AND (c7 < DATE '2024-04-01'))
  outputs:
    id INT = c0

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 7 day, 13 ts]
