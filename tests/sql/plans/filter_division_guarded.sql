SELECT id FROM s WHERE n <> 0 AND id / n > 1
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, n
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id
    Filter ((n != 0) and ((cast(id as DOUBLE) / cast(n as DOUBLE)) > 1.0))
      StreamScan s shared_required_schema=SOME [0 id, 5 n]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 5 n]
  r1 := PhysicalFilter(r0) ring=0 where=CASE WHEN (c5 <> 0::BIGINT) THEN ((CASE WHEN CAST(c5 AS DOUBLE) = 0 AND CAST(c0 AS DOUBLE) IS NOT NULL THEN error('DIVIDE_BY_ZERO') ELSE CAST(c0 AS DOUBLE) / CAST(c5 AS DOUBLE) END > '1.0'::DOUBLE)) ELSE FALSE END
  r2 := PhysicalProject(r1) ring=0 columns=1

ring 0 (in the tasks that read the stream)
  filter: CASE WHEN (c5 <> 0::BIGINT) THEN ((CASE WHEN CAST(c5 AS DOUBLE) = 0 AND CAST(c0 AS DOUBLE) IS NOT NULL THEN error('DIVIDE_BY_ZERO') ELSE CAST(c0 AS DOUBLE) / CAST(c5 AS DOUBLE) END > '1.0'::DOUBLE)) ELSE FALSE END
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
  view (positions are those of the full schema): SOME [0 id, 5 n]
