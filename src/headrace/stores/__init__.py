"""Object stores and HDFS, through pyarrow's file systems. Sources and sinks use them by URL: `s3://bucket/path`."""
