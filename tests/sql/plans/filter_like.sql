SELECT id FROM s WHERE k LIKE 'a%' AND k NOT LIKE '%\\_z' AND k RLIKE '^[a-z]+$'
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    Filter (((k like 'a%') and (not (k like '%\_z'))) and (k rlike '^[a-z]+$'))
      StreamScan s shared_required_schema=SOME [0 id, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k]
  r1 := PhysicalFilter(r0) ring=0 where=((c3 LIKE 'a%' ESCAPE '\') AND (NOT (c3 LIKE '%\_z' ESCAPE '\')) AND regexp_matches(c3, '\A[a-z]+(?:\r\n|[\x{A}\x{D}\x{85}\x{2028}-\x{2029}])?\z'))
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: ((c3 LIKE 'a%' ESCAPE '\') AND (NOT (c3 LIKE '%\_z' ESCAPE '\')) AND regexp_matches(c3, '\A[a-z]+(?:\r\n|[\x{A}\x{D}\x{85}\x{2028}-\x{2029}])?\z'))
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
  view (positions are those of the full schema): SOME [0 id, 3 k]
