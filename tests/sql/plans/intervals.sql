SELECT ts + INTERVAL 1 HOUR AS a, ts - INTERVAL 1 DAY AS b, day + INTERVAL 1 MONTH AS c FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: day, ts
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := (ts + interval 1 hour), b := (ts + interval -1 days), c := (day + interval 1 months)
    StreamScan s shared_required_schema=SOME [7 day, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [7 day, 13 ts]
  r1 := PhysicalProject(r0) ring=0 columns=3

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    a TIMESTAMP = (c13 + (to_microseconds(3600000000)))
    b TIMESTAMP = (c13 + (to_days(-1)))
    c DATE = CASE WHEN year(c7) BETWEEN -200000 AND 200000 THEN CAST(c7 + to_months(1) AS DATE) ELSE (DATE '1970-01-01' + CAST(hr_date_add_months((c7 - DATE '1970-01-01'), 1) AS INTEGER)) END

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [7 day, 13 ts]
