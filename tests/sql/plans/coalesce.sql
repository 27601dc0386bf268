SELECT coalesce(temp, hum, 0) AS t, nvl(k, 'none') AS k, if(ok, 1, 0) AS o, nullif(id, 0) AS i FROM s
----
query
reads: stream s (generator, json), 5 of its 14 columns: id, temp, hum, k, ok
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project t := coalesce(temp, cast(hum as DOUBLE), 0.0), k := coalesce(k, 'none'), o := case when ok then 1 else 0 end, i := nullif(id, 0)
    StreamScan s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k, 4 ok]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 2 hum, 3 k, 4 ok]
  r1 := PhysicalProject(r0) ring=0 columns=4

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    t DOUBLE = coalesce(c1, CAST(c2 AS DOUBLE), '0.0'::DOUBLE)
    k STRING = coalesce(c3, 'none')
    o INT = CASE WHEN c4 THEN 1::INTEGER ELSE 0::INTEGER END
    i INT = nullif(c0, 0::INTEGER)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 2 hum, 3 k, 4 ok]
