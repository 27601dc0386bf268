SELECT k, temp AS v FROM s WHERE temp > 1 UNION ALL SELECT k, id FROM s WHERE ok
----
query
reads: stream s (generator, json), 4 of its 14 columns: id, temp, k, ok
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project k, v := case when (branch = 0) then temp else cast(id as DOUBLE) end
    Filter case when (branch = 0) then (temp > 1.0) else ok end
      Generate branch := each of array(0, 1)
        Filter ((temp > 1.0) or ok)
          StreamScan s shared_required_schema=SOME [0 id, 1 temp, 3 k, 4 ok]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 3 k, 4 ok]
  r1 := PhysicalFilter(r0) ring=0 where=((c1 > '1.0'::DOUBLE) OR c4)
  r2 := PhysicalGenerate(r1) ring=0 makes=c14 INT outer=no
  r3 := PhysicalFilter(r2) ring=0 where=CASE WHEN (c14 = 0::INTEGER) THEN (c1 > '1.0'::DOUBLE) ELSE c4 END
  r4 := PhysicalProject(r3) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: ((c1 > '1.0'::DOUBLE) OR c4)
  rows made of the elements of:
    c14 INT = CAST([0::INTEGER, 1::INTEGER] AS INTEGER[])
  filter of the made rows: CASE WHEN (c14 = 0::INTEGER) THEN (c1 > '1.0'::DOUBLE) ELSE c4 END
  outputs:
    k STRING = c3
    v DOUBLE = CASE WHEN (c14 = 0::INTEGER) THEN c1 ELSE CAST(c0 AS DOUBLE) END

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 3 k, 4 ok]
