SELECT upper(tag) AS tag, len FROM (SELECT explode(tags) AS tag, id + 1 AS len FROM s WHERE temp > 0) WHERE tag <> 'b' AND len > 1
----
query
reads: stream s (generator, json), 3 of its 14 columns: id, temp, tags
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project tag := upper(tag), len := (id + 1)
    Filter ((tag != 'b') and ((id + 1) > 1))
      Generate tag := each of tags
        Filter (temp > 0.0)
          StreamScan s shared_required_schema=SOME [0 id, 1 temp, 9 tags]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 1 temp, 9 tags]
  r1 := PhysicalFilter(r0) ring=0 where=(c1 > '0.0'::DOUBLE)
  r2 := PhysicalGenerate(r1) ring=0 makes=c14 STRING outer=no
  r3 := PhysicalFilter(r2) ring=0 where=CASE WHEN (c14 <> 'b') THEN ((add(c0, 1::INTEGER) > 1::INTEGER)) ELSE FALSE END
  r4 := PhysicalProject(r3) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: (c1 > '0.0'::DOUBLE)
  rows made of the elements of:
    c14 STRING = c9
  filter of the made rows: CASE WHEN (c14 <> 'b') THEN ((add(c0, 1::INTEGER) > 1::INTEGER)) ELSE FALSE END
  outputs:
    tag STRING = CASE WHEN strlen(c14) > length(c14) THEN hr_upper(c14) ELSE upper(c14) END
    len INT = add(c0, 1::INTEGER)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 1 temp, 9 tags]
