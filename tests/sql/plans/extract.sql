SELECT EXTRACT(YEAR FROM ts) AS y, date_part('week', day) AS w FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: day, ts
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project y := year(ts), w := weekofyear(day)
    StreamScan s shared_required_schema=SOME [7 day, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [7 day, 13 ts]
  r1 := PhysicalProject(r0) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    y INT = CAST(year(make_timestamp(hr_reading(epoch_us(c13)))) AS INTEGER)
    w INT = CAST(week(c7) AS INTEGER)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [7 day, 13 ts]
