SELECT id, explode(array(concat(k, k), k)) AS tag FROM s WHERE concat(k, 'x') <> 'ax'
----
query
reads: stream s (generator, json), 2 of its 14 columns: id, k
keeps: no state: every row is handled by itself
guarantees: nothing, because it has no sink
host: shared (one stream, and every expression is on the verified list)

logical plan
  Project id, tag
    Generate tag := each of array(concat(k, k), k)
      Filter (concat(k, 'x') != 'ax')
        StreamScan s shared_required_schema=SOME [0 id, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k]
  r1 := PhysicalGenerate(r0) ring=0 where=((c3 || 'x') <> 'ax') makes=c14 STRING outer=no
  r2 := PhysicalProject(r1) ring=0 columns=2

ring 0 (in the tasks that read the stream)
  filter: none
  filter: ((c3 || 'x') <> 'ax')
  rows made of the elements of:
    c14 STRING = CAST([(c3 || c3), c3] AS VARCHAR[])
  outputs:
    id INT = c0
    tag STRING = c14

watermark
  highest ts of the whole stream - 10 seconds

sinks
  none

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id, 3 k]
