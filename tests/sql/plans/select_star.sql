SELECT * FROM s
----
query
reads: stream s (generator, json), 14 of its 14 columns: id, temp, hum, k, ok, n, price, day and 6 more
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, temp, hum, k, ok, n, price, day, pos, tags, attrs, raw, ... 2 more
    StreamScan s shared_required_schema=ALL (14 columns)

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=ALL (14 columns)
  r1 := PhysicalProject(r0) ring=0 columns=14

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
    tags ARRAY<STRING> = c9
    attrs MAP<STRING, STRING> = c10
    raw BINARY = c11
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
  view (positions are those of the full schema): ALL (14 columns)
