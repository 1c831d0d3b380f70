-- The service graph: who depends on whom, a row for each edge and window, from the lines that collectors publish.
-- docs/kafka.md defines it; crates/skua-kafka/src/service_graph.rs is the same definition in process, and a test has
-- both compute one input. stream/flink/run puts names in the place of {words}, and starts it.

-- Rows are written when a checkpoint is complete; after a fault the job goes on from the last one, and writes the rows
-- since then again, over the same keys.
SET 'execution.checkpointing.interval' = '{checkpoints}';
-- A partition without lines does not hold up the others.
SET 'table.exec.source.idle-timeout' = '{idle}';
-- Times are UTC.
SET 'table.local-time-zone' = 'UTC';

-- proto/skua/collect/v1/line.proto; what is not needed here is left out.
CREATE TABLE lines (
  `version` INT,
  window_ns BIGINT,
  protocol INT,
  client_address STRING,
  server_address STRING,
  port INT,
  client_packets BIGINT,
  client_bytes BIGINT,
  server_packets BIGINT,
  server_bytes BIGINT,
  client_retransmitted BIGINT,
  server_retransmitted BIGINT,
  begun BIGINT,
  ended BIGINT,
  `reset` BIGINT,
  handshakes BIGINT,
  handshake_sum_us BIGINT,
  handshake_min_us BIGINT,
  handshake_max_us BIGINT,
  ms AS window_ns / 1000000,
  begins AS TO_TIMESTAMP_LTZ(window_ns / 1000000, 3),
  -- Collectors close the same window at different moments.
  WATERMARK FOR begins AS begins - INTERVAL '30' SECOND
) WITH (
  'connector' = 'kafka',
  'properties.bootstrap.servers' = '{brokers}',
  {properties}
  'topic' = '{lines}',
  'properties.group.id' = 'skua-service-graph',
  'scan.startup.mode' = '{from}',
  {bounded}
  'format' = 'protobuf',
  'protobuf.message-class-name' = 'skua.collect.v1.Line',
  -- What is no line holds nothing up. The rows' `lines` tell how many were counted.
  'protobuf.ignore-parse-errors' = 'true',
  'protobuf.read-default-values' = 'true'
);

-- Keyed by edge and window: compaction leaves the last row of each.
CREATE TABLE service_graph (
  window_ms BIGINT,
  protocol INT,
  `client` STRING,
  server STRING,
  port INT,
  client_packets BIGINT,
  client_bytes BIGINT,
  server_packets BIGINT,
  server_bytes BIGINT,
  client_retransmitted BIGINT,
  server_retransmitted BIGINT,
  begun BIGINT,
  ended BIGINT,
  `reset` BIGINT,
  handshakes BIGINT,
  handshake_sum_us BIGINT,
  handshake_min_us BIGINT,
  handshake_max_us BIGINT,
  first_ms BIGINT,
  last_ms BIGINT,
  `lines` BIGINT,
  PRIMARY KEY (window_ms, protocol, `client`, server, port) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'properties.bootstrap.servers' = '{brokers}',
  {properties}
  'properties.compression.type' = 'zstd',
  'topic' = '{graph}',
  'key.format' = 'json',
  'value.format' = 'json'
);

INSERT INTO service_graph
SELECT
  MIN(ms - MOD(ms, {window} * 1000)),
  protocol,
  client_address,
  server_address,
  port,
  SUM(client_packets),
  SUM(client_bytes),
  SUM(server_packets),
  SUM(server_bytes),
  SUM(client_retransmitted),
  SUM(server_retransmitted),
  SUM(begun),
  SUM(ended),
  SUM(`reset`),
  SUM(handshakes),
  SUM(handshake_sum_us),
  COALESCE(MIN(CASE WHEN handshakes > 0 THEN handshake_min_us END), 0),
  COALESCE(MAX(CASE WHEN handshakes > 0 THEN handshake_max_us END), 0),
  MIN(ms),
  MAX(ms),
  COUNT(*)
FROM TABLE(TUMBLE(TABLE lines, DESCRIPTOR(begins), INTERVAL '{window}' SECOND))
-- Lines of another version have another meaning.
WHERE `version` = 1
GROUP BY window_start, window_end, protocol, client_address, server_address, port;
