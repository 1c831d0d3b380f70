-- The service graph: a row for each edge and window, from the lines that collectors publish.
-- docs/kafka.md defines it; crates/ship/kafka/src/service_graph.rs is the same definition in process, and a test has
-- both compute one input. stream/flink/run puts names in the place of {words}, and starts it.

-- Rows are written when a checkpoint is complete; after a fault the job goes on from the last one, and writes the rows
-- since then again, over the same keys.
SET 'execution.checkpointing.interval' = '{checkpoints}';
-- A partition without lines does not hold up the others.
SET 'table.exec.source.idle-timeout' = '{idle}';
-- Late lines from spools correct the row of a closed window, up to this long after its end.
SET 'table.exec.emit.allow-lateness' = '{late} s';
SET 'table.exec.emit.late-fire.enabled' = 'true';
SET 'table.exec.emit.late-fire.delay' = '{correct}';
-- All rows of a key are made by one task, in their order.
SET 'table.exec.sink.upsert-materialize' = 'NONE';
-- Times are UTC.
SET 'table.local-time-zone' = 'UTC';

-- proto/skua/collect/v1/line.proto; unused fields are left out.
CREATE TABLE lines (
  `version` INT,
  window_ns BIGINT,
  length_ns BIGINT,
  protocol INT,
  client_address STRING,
  server_address STRING,
  client_service STRING,
  server_service STRING,
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
  refused BIGINT,
  timed_out BIGINT,
  samples BIGINT,
  rtts BIGINT,
  rtt_sum_us BIGINT,
  rtt_min_us BIGINT,
  rtt_max_us BIGINT,
  rtt_classes ARRAY<ROW<us BIGINT, times BIGINT>>,
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
  -- Messages that are no lines delay nothing.
  'protobuf.ignore-parse-errors' = 'true',
  'protobuf.read-default-values' = 'true'
);

-- Names and types by crates/ship/collect/src/graph/fields.rs. Keyed by edge and window: compaction keeps the last row of each.
CREATE TABLE service_graph (
  window_ms BIGINT,
  protocol INT,
  client_service STRING,
  client_address STRING,
  server_service STRING,
  server_address STRING,
  port INT,
  client_packets BIGINT,
  client_bytes BIGINT,
  server_packets BIGINT,
  server_bytes BIGINT,
  client_retransmitted BIGINT,
  server_retransmitted BIGINT,
  connections BIGINT,
  ended BIGINT,
  `reset` BIGINT,
  refused BIGINT,
  timed_out BIGINT,
  samples BIGINT,
  rtt_count BIGINT,
  rtt_sum_us BIGINT,
  rtt_min_us BIGINT,
  rtt_max_us BIGINT,
  rtt_p50_us BIGINT,
  rtt_p95_us BIGINT,
  rtt_p99_us BIGINT,
  first_ms BIGINT,
  last_ms BIGINT,
  PRIMARY KEY (window_ms, protocol, client_service, client_address, server_service, server_address, port) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'properties.bootstrap.servers' = '{brokers}',
  {properties}
  'properties.compression.type' = 'zstd',
  'topic' = '{graph}',
  -- A correction is a deletion and an insertion: together they are the new row alone.
  'sink.buffer-flush.max-rows' = '10000',
  'sink.buffer-flush.interval' = '1 s',
  'key.format' = 'json',
  'value.format' = 'json'
);

-- The first class with which a share of all times is reached (Quantiles.java).
CREATE TEMPORARY FUNCTION quantiles AS 'skua.stream.Quantiles';

-- An edge: at each end a service name, else an address. Lines of another version have another meaning.
CREATE TEMPORARY VIEW understood AS
SELECT
  *,
  CASE WHEN client_service = '' THEN client_address ELSE '' END AS client,
  CASE WHEN server_service = '' THEN server_address ELSE '' END AS server
FROM lines
WHERE `version` = 1;

-- Windows of the older kind: the newer ones (TUMBLE as a table) drop late lines.
CREATE TEMPORARY VIEW sums AS
SELECT
  TUMBLE_START(begins, INTERVAL '{window}' SECOND) AS window_start,
  protocol,
  client_service,
  client AS client_address,
  server_service,
  server AS server_address,
  port,
  SUM(client_packets) AS client_packets,
  SUM(client_bytes) AS client_bytes,
  SUM(server_packets) AS server_packets,
  SUM(server_bytes) AS server_bytes,
  SUM(client_retransmitted) AS client_retransmitted,
  SUM(server_retransmitted) AS server_retransmitted,
  SUM(begun) AS connections,
  SUM(ended) AS ended,
  SUM(`reset`) AS `reset`,
  SUM(refused) AS refused,
  SUM(timed_out) AS timed_out,
  SUM(samples) AS samples,
  SUM(rtts) AS rtt_count,
  SUM(rtt_sum_us) AS rtt_sum_us,
  COALESCE(MIN(CASE WHEN rtts > 0 THEN rtt_min_us END), 0) AS rtt_min_us,
  COALESCE(MAX(CASE WHEN rtts > 0 THEN rtt_max_us END), 0) AS rtt_max_us,
  quantiles(rtt_classes) AS rtt,
  MIN(window_ns / 1000000) AS first_ms,
  MAX((window_ns + length_ns) / 1000000) AS last_ms
FROM understood
GROUP BY TUMBLE(begins, INTERVAL '{window}' SECOND), protocol, client_service, client, server_service, server, port;

INSERT INTO service_graph
SELECT
  first_ms - MOD(first_ms, {window} * 1000),
  protocol,
  client_service,
  client_address,
  server_service,
  server_address,
  port,
  client_packets,
  client_bytes,
  server_packets,
  server_bytes,
  client_retransmitted,
  server_retransmitted,
  connections,
  ended,
  `reset`,
  refused,
  timed_out,
  samples,
  rtt_count,
  rtt_sum_us,
  rtt_min_us,
  rtt_max_us,
  -- The midpoint of a class may be beyond the measured times.
  COALESCE(LEAST(GREATEST(rtt.p50_us, rtt_min_us), rtt_max_us), 0),
  COALESCE(LEAST(GREATEST(rtt.p95_us, rtt_min_us), rtt_max_us), 0),
  COALESCE(LEAST(GREATEST(rtt.p99_us, rtt_min_us), rtt_max_us), 0),
  first_ms,
  last_ms
FROM sums;
