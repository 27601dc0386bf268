SELECT id FROM s WHERE temp BETWEEN 1 AND 2.5 AND day NOT BETWEEN '2024-01-01' AND '2024-12-31'
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, temp, day
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    Filter (((temp >= 1.0) and (temp <= 2.5)) and (not ((day >= 2024-01-01) and (day <= 2024-12-31))))
      StreamScan s shared_required_schema=SOME [0 id, 1 temp, 7 day]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 7 day]
  r1 := PhysicalFilter(r0) ring=0 where=((c1 >= '1.0'::DOUBLE) AND (c1 <= '2.5'::DOUBLE) AND (NOT ((c7 >= DATE '2024-01-01') AND (c7 <= DATE '2024-12-31'))))
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: ((c1 >= '1.0'::DOUBLE) AND (c1 <= '2.5'::DOUBLE) AND (NOT ((c7 >= DATE '2024-01-01') AND (c7 <= DATE '2024-12-31'))))
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
  view (positions are those of the full schema): SOME [0 id, 1 temp, 7 day]
