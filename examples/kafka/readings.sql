-- From one Kafka topic to two others. Needs a broker with the topics readings, hot and minutes, and headrace[kafka].
-- Write messages such as {"device": "a", "temp": 35.5} to readings, with any producer.

CREATE STREAM readings (
  device STRING, temp DOUBLE,
  at TIMESTAMP METADATA FROM 'timestamp', source_offset BIGINT METADATA FROM 'offset',
  WATERMARK FOR at AS at - INTERVAL 5 SECONDS
) WITH (source = 'kafka', format = 'json', topics = 'readings', kafka.bootstrap.servers = 'localhost:9092');

CREATE SINK hot     WITH (type = 'kafka', topic = 'hot', key = 'device', kafka.bootstrap.servers = 'localhost:9092');
CREATE SINK minutes WITH (type = 'kafka', topic = 'minutes', key = 'device', kafka.bootstrap.servers = 'localhost:9092');

CREATE PIPELINE hot_readings INTO hot AS
  SELECT device, temp, at, source_offset FROM readings WHERE temp > 33;

CREATE PIPELINE by_minute INTO minutes AS
  SELECT window.start AS minute, device, count(*) AS readings, avg(temp) AS temp
  FROM readings GROUP BY window(at, '1 minute'), device;
