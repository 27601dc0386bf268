SELECT CASE k WHEN 'a' THEN 1 WHEN 'b' THEN 2 END AS c FROM s
----
query
reads: stream s (generator, json), 1 of its 14 columns: k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project c := case when (k = 'a') then 1 when (k = 'b') then 2 end
    StreamScan s shared_required_schema=SOME [3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [3 k]
  r1 := PhysicalProject(r0) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    c INT = CASE WHEN (c3 = 'a') THEN 1::INTEGER WHEN (c3 = 'b') THEN 2::INTEGER END

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [3 k]
