SELECT pos.lat, s.pos.lon AS east FROM s WHERE pos.lat > 0
----
query
reads: stream s (generator, json), 1 of its 14 columns: pos.lat, pos.lon
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project lat := pos.lat, east := pos.lon
    Filter (pos.lat > 0.0)
      StreamScan s shared_required_schema=SOME [8 pos]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [8 pos.lat, 8 pos.lon]
  r1 := PhysicalFilter(r0) ring=0 where=(c1000000 > '0.0'::DOUBLE)
  r2 := PhysicalProject(r1) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: (c1000000 > '0.0'::DOUBLE)
  outputs:
    lat DOUBLE = c1000000
    east DOUBLE = c1000001

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [8 pos.lat, 8 pos.lon]
