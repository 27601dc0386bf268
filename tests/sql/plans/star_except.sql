SELECT * EXCEPT (raw, tags, attrs) FROM s
----
query
reads: stream s (generator, json), 11 of its 14 columns: id, temp, hum, k, ok, n, price, day and 3 more
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, temp, hum, k, ok, n, price, day, pos, at, ts
    StreamScan s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k, 4 ok, 5 n, 6 price, 7 day, 8 pos, 12 at, 13 ts]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k, 4 ok, 5 n, 6 price, 7 day, 8 pos, 12 at, 13 ts]
  r1 := PhysicalProject(r0) ring=0 columns=11

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    id INT = c0
    temp DOUBLE = c1
    hum FLOAT = c2
    k STRING = c3
    ok BOOLEAN = c4
    n BIGINT = c5
    price DECIMAL(10,2) = c6
    day DATE = c7
    pos STRUCT<lat: DOUBLE, lon: DOUBLE> = c8
    at TIMESTAMP_NTZ = c12
    ts TIMESTAMP = c13

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 2 hum, 3 k, 4 ok, 5 n, 6 price, 7 day, 8 pos, 12 at, 13 ts]
