SELECT pos.*, array(id, 1) AS a, map('k', k) AS m, struct(id, k AS kk) AS st, attrs['a'] AS v, element_at(tags, -1) AS l FROM s WHERE size(tags) > 0
----
query
reads: stream s (generator, json), 5 of its 14 columns: id, k, tags, attrs, pos.lat, pos.lon
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project lat := pos.lat, lon := pos.lon, a := array(id, 1), m := map('k', k), st := struct(id, k), v := element(attrs, 'a'), l := element_at(tags, -1)
    Filter (size(tags) > 0)
      StreamScan s shared_required_schema=SOME [0 id, 3 k, 8 pos, 9 tags, 10 attrs]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k, 8 pos.lat, 8 pos.lon, 9 tags, 10 attrs]
  r1 := PhysicalFilter(r0) ring=0 where=(CAST(len(c9) AS INTEGER) > 0::INTEGER)
  r2 := PhysicalProject(r1) ring=0 columns=7

ring 0 (in the tasks that read the stream)
  filter: (CAST(len(c9) AS INTEGER) > 0::INTEGER)
  outputs:
    lat DOUBLE = c1000000
    lon DOUBLE = c1000001
    a ARRAY<INT> = CAST([c0, 1::INTEGER] AS INTEGER[])
    m MAP<STRING, STRING> = hr_map(CASE WHEN CAST('k' AS VARCHAR) IS NULL THEN error('NULL_MAP_KEY') WHEN FALSE THEN error('DUPLICATED_MAP_KEY') ELSE [struct_pack(key := CAST('k' AS VARCHAR), value := CAST(c3 AS VARCHAR))] END)
    st STRUCT<id: INT, kk: STRING> = struct_pack("id" := CAST(c0 AS INTEGER), "kk" := CAST(c3 AS VARCHAR))
    v STRING = c10['a']
    l STRING = CASE WHEN c9 IS NULL OR (-1)::INTEGER IS NULL THEN NULL WHEN (-1)::INTEGER = 0 THEN error('INVALID_INDEX_OF_ZERO') WHEN (-1)::INTEGER > len(c9) OR -((-1)::INTEGER::BIGINT) > len(c9) THEN error('INVALID_ARRAY_INDEX_IN_ELEMENT_AT') ELSE c9[(-1)::INTEGER] END

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k, 8 pos.lat, 8 pos.lon, 9 tags, 10 attrs]
