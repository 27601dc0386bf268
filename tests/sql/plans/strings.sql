SELECT upper(k) AS a, substring(k, 1, 3) AS b, concat(k, '-', id) AS c, k || '!' AS d, length(trim(k)) AS e FROM s
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project a := upper(k), b := substring(k, 1, 3), c := concat(k, '-', cast(id as STRING)), d := (k || '!'), e := length(trim(k))
    StreamScan s shared_required_schema=SOME [0 id, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k]
  r1 := PhysicalProject(r0) ring=0 columns=5

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    a STRING = CASE WHEN strlen(c3) > length(c3) THEN hr_upper(c3) ELSE upper(c3) END
    b STRING = substring(c3, 1, 3)
    c STRING = (c3 || '-' || CAST(c0 AS VARCHAR))
    d STRING = (c3 || '!')
    e INT = CAST(length(CASE WHEN starts_with(c3, ' ') OR ends_with(c3, ' ') THEN trim(c3, ' ') ELSE c3 END) AS INTEGER)

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k]
