SELECT id, tag, name, c FROM s LATERAL VIEW explode(tags) t AS tag LATERAL VIEW OUTER explode(map_keys(attrs)) u AS name LATERAL VIEW explode(array(tag, name)) w AS c WHERE tag > '' AND ok
----
query
reads: stream s (generator, json), 4 of its 14 columns: id, ok, tags, attrs
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, tag, name, c
    Generate c := each of array(tag, name)
      Generate outer name := each of map_keys(attrs)
        Filter (tag > '')
          Generate tag := each of tags
            Filter ok
              StreamScan s shared_required_schema=SOME [0 id, 4 ok, 9 tags, 10 attrs]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 4 ok, 9 tags, 10 attrs]
  r1 := PhysicalFilter(r0) ring=0 where=c4
  r2 := PhysicalGenerate(r1) ring=0 makes=c14 STRING outer=no
  r3 := PhysicalFilter(r2) ring=0 where=(c14 > '')
  r4 := PhysicalGenerate(r3) ring=0 makes=c15 STRING outer=yes
  r5 := PhysicalGenerate(r4) ring=0 makes=c16 STRING outer=no
  r6 := PhysicalProject(r5) ring=0 columns=4

ring 0 (in the tasks that read the stream)
  filter: c4
  rows made of the elements of:
    c14 STRING = c9
  filter: (c14 > '')
  rows made of the elements of (a row of NULLs for none):
    c15 STRING = list_transform(c10_entries, lambda x_1: x_1.key)
  rows made of the elements of:
    c16 STRING = CAST([c14, c15] AS VARCHAR[])
  outputs:
    id INT = c0
    tag STRING = c14
    name STRING = c15
    c STRING = c16

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 4 ok, 9 tags, 10 attrs]
