SELECT id FROM s WHERE (temp > 20 OR hum < 0.5) AND k IS NOT NULL
----
query
reads: stream s (generator, json), 4 of its 14 columns: id, temp, hum, k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    Filter (((temp > 20.0) or (cast(hum as DOUBLE) < 0.5)) and (not isnull(k)))
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k]
  r1 := PhysicalFilter(r0) ring=0 where=(((c1 > '20.0'::DOUBLE) OR (CAST(c2 AS DOUBLE) < '0.5'::DOUBLE)) AND (NOT (c3 IS NULL)))
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: (((c1 > '20.0'::DOUBLE) OR (CAST(c2 AS DOUBLE) < '0.5'::DOUBLE)) AND (NOT (c3 IS NULL)))
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
  view (positions are those of the full schema): SOME [0 id, 1 temp, 2 hum, 3 k]
