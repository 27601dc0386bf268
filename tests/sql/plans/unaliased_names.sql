SELECT id + 1, upper(k), CAST(n AS STRING), -id, NOT ok FROM s
----
query
reads: stream s (generator, json), 4 of its 14 columns: id, k, ok, n
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project (id + 1), upper(k), n := cast(n as STRING), (- id) := negative(id), (NOT ok) := (not ok)
    StreamScan s shared_required_schema=SOME [0 id, 3 k, 4 ok, 5 n]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k, 4 ok, 5 n]
  r1 := PhysicalProject(r0) ring=0 columns=5

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    (id + 1) INT = add(c0, 1::INTEGER)
    upper(k) STRING = CASE WHEN strlen(c3) > length(c3) THEN hr_upper(c3) ELSE upper(c3) END
    n STRING = CAST(c5 AS VARCHAR)
    (- id) INT = subtract(c0)
    (NOT ok) BOOLEAN = (NOT c4)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k, 4 ok, 5 n]
