SELECT id + 1 AS one, one * 2 AS two, two + one AS three FROM s WHERE id > 0
----
query
reads: stream s (generator, json), 1 of its 14 columns: id
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project one := (id + 1), two := ((id + 1) * 2), three := ((((id + 1) * 2) + id) + 1)
    Filter (id > 0)
      StreamScan s shared_required_schema=SOME [0 id]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id]
  r1 := PhysicalFilter(r0) ring=0 where=(c0 > 0::INTEGER)
  r2 := PhysicalProject(r1) ring=0 columns=3

ring 0 (in the tasks that read the stream)
  filter: (c0 > 0::INTEGER)
  outputs:
    one INT = add(c0, 1::INTEGER)
    two INT = multiply(add(c0, 1::INTEGER), 2::INTEGER)
    three INT = add(add(multiply(add(c0, 1::INTEGER), 2::INTEGER), c0), 1::INTEGER)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id]
