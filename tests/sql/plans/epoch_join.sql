-- any host
CREATE PIPELINE p INTO out AS
    SELECT s.id, d.name FROM s LEFT JOIN dim d ON s.k = d.k WHERE s.id > 3
----
pipeline p
reads: stream s (generator, json), 2 of its 14 columns: id, k
keeps: no state: every row is handled by itself
guarantees: sink out: exactly once while the process lives; kept in memory only
host: epoch (a join needs Spark)
decided by: LEFT JOIN dim

logical plan
  Project id, k
    StreamScan s shared_required_schema=SOME [0 id, 3 k]

physical plan
  r0 := PhysicalSharedStream() stream=s shared_required_schema=SOME [0 id, 3 k]
  r1 := PhysicalProject(r0) ring=0 columns=2
  r2 := PhysicalSparkQuery(r1) in=commit staged=[id, k] sql=SELECT s.id, d.name FROM s LEFT JOIN dim d ON s.k = d.k WHERE s.id > 3
  r3 := PhysicalSink(r2) sink=out type=memory staged_by=query guarantee=exactly once while the process lives; kept in memory only
  r4 := PhysicalCommit(r3) waits_for=all tasks

ring 0 (in the tasks that read the stream)
  filter: none
  outputs:
    id INT = c0
    k STRING = c3

spark
  in the commit of every epoch, over the rows that the rings staged:
    SELECT s.id, d.name FROM s LEFT JOIN dim d ON s.k = d.k WHERE s.id > 3
  reads s (id, k)
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
  view (positions are those of the full schema): SOME [0 id, 3 k]
