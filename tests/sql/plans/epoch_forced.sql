-- any host
CREATE PIPELINE p INTO out WITH (host = 'epoch') AS SELECT id, current_timestamp() AS seen FROM s WHERE id > 3
----
pipeline p
reads: stream s (generator, json), 1 of its 14 columns: id
keeps: no state: every row is handled by itself
guarantees: sink out: exactly once while the process lives; kept in memory only
host: epoch (the option host = 'epoch')

logical plan
  Project id
    StreamScan s shared_required_schema=SOME [0 id]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id]
  r1 := PhysicalProject(r0) ring=0 columns=1
  r2 := PhysicalSparkQuery(r1) in=commit staged=[id] sql=SELECT id, current_timestamp() AS seen FROM s WHERE id > 3
  r3 := PhysicalSink(r2) sink=out type=memory staged_by=query guarantee=exactly once while the process lives; kept in memory only
  r4 := PhysicalCommit(r3) waits_for=all tasks

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    id INT = c0

spark
  in the commit of every epoch, over the rows that the rings staged:
    SELECT id, current_timestamp() AS seen FROM s WHERE id > 3
  reads s (id)
  clock: the epoch's own
  not checked: Spark checks it when the pipeline is created

watermark
  highest ts of the whole stream - 10 seconds

sinks
  out: memory, exactly once while the process lives; kept in memory only
  commit: when all tasks of the epoch have delivered its barrier, and the Spark query has run

stream s
  read: source generator, format json; cut among the tasks
  indexer: headrace.formats.kernels.scan_json; unwanted fields are skipped
  declared: 14 columns
  view (positions are those of the full schema): SOME [0 id]
