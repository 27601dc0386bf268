SELECT CASE WHEN temp > 30 THEN 'hot' WHEN temp < 0 THEN 'cold' ELSE 'fair' END AS c FROM s
----
query
reads: stream s (generator, json), 1 of its 14 columns: temp
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project c := case when (temp > 30.0) then 'hot' when (temp < 0.0) then 'cold' else 'fair' end
    StreamScan s shared_required_schema=SOME [1 temp]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [1 temp]
  r1 := PhysicalProject(r0) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    c STRING = CASE WHEN (c1 > '30.0'::DOUBLE) THEN 'hot' WHEN (c1 < '0.0'::DOUBLE) THEN 'cold' ELSE 'fair' END

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [1 temp]
