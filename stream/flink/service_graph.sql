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
  -- What is no line holds nothing up.
  'protobuf.ignore-parse-errors' = 'true',
  'protobuf.read-default-values' = 'true'
);

-- Keyed by edge and window: compaction leaves the last row of each.
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
  'key.format' = 'json',
  'value.format' = 'json'
);

-- An edge: at each end a service by its name, else an address. Lines of another version have another meaning.
CREATE TEMPORARY VIEW told AS
SELECT
  *,
  CONCAT_WS(
    ' ',
    CAST(protocol AS STRING),
    CAST(port AS STRING),
    -- Names may have anything in them: where they end is known by their lengths.
    CAST(CHAR_LENGTH(client_service) AS STRING),
    client_service,
    CAST(CHAR_LENGTH(server_service) AS STRING),
    server_service,
    CASE WHEN client_service = '' THEN client_address ELSE '' END,
    CASE WHEN server_service = '' THEN server_address ELSE '' END
  ) AS edge
FROM lines
WHERE `version` = 1;

CREATE TEMPORARY VIEW sums AS
SELECT
  window_start,
  window_end,
  window_time,
  edge,
  MIN(window_ns / 1000000 - MOD(window_ns / 1000000, {window} * 1000)) AS window_ms,
  MIN(protocol) AS protocol,
  MIN(client_service) AS client_service,
  MIN(CASE WHEN client_service = '' THEN client_address ELSE '' END) AS client_address,
  MIN(server_service) AS server_service,
  MIN(CASE WHEN server_service = '' THEN server_address ELSE '' END) AS server_address,
  MIN(port) AS port,
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
  MIN(window_ns / 1000000) AS first_ms,
  MAX((window_ns + length_ns) / 1000000) AS last_ms
FROM TABLE(TUMBLE(TABLE told, DESCRIPTOR(begins), INTERVAL '{window}' SECOND))
GROUP BY window_start, window_end, window_time, edge;

-- Round-trip times by class: those of several lines are added up by their middles.
CREATE TEMPORARY VIEW told_classes AS
SELECT begins, edge, us, times
FROM told CROSS JOIN UNNEST(rtt_classes) AS class (us, times);

CREATE TEMPORARY VIEW classes AS
SELECT window_start, window_end, window_time, edge, us, SUM(times) AS times
FROM TABLE(TUMBLE(TABLE told_classes, DESCRIPTOR(begins), INTERVAL '{window}' SECOND))
GROUP BY window_start, window_end, window_time, edge, us;

-- Of each class, how many times are in it and below, and how many there are in all. An edge has some tens of classes.
CREATE TEMPORARY VIEW ranks AS
SELECT
  a.window_start,
  a.window_end,
  a.window_time,
  a.edge,
  a.us,
  SUM(CASE WHEN b.us <= a.us THEN b.times ELSE 0 END) AS upto,
  SUM(b.times) AS times
FROM classes AS a
JOIN classes AS b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.edge = b.edge
GROUP BY a.window_start, a.window_end, a.window_time, a.edge, a.us;

-- The first class with which the share is reached.
CREATE TEMPORARY VIEW quantiles AS
SELECT
  window_start,
  window_end,
  window_time,
  edge,
  MIN(CASE WHEN upto * 100 >= times * 50 THEN us END) AS p50_us,
  MIN(CASE WHEN upto * 100 >= times * 95 THEN us END) AS p95_us,
  MIN(CASE WHEN upto * 100 >= times * 99 THEN us END) AS p99_us
FROM ranks
GROUP BY window_start, window_end, window_time, edge;

INSERT INTO service_graph
SELECT
  window_ms,
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
  -- The middle of a class may be beyond what was measured.
  COALESCE(LEAST(GREATEST(p50_us, rtt_min_us), rtt_max_us), 0),
  COALESCE(LEAST(GREATEST(p95_us, rtt_min_us), rtt_max_us), 0),
  COALESCE(LEAST(GREATEST(p99_us, rtt_min_us), rtt_max_us), 0),
  first_ms,
  last_ms
FROM sums
LEFT JOIN quantiles
  ON sums.window_start = quantiles.window_start
  AND sums.window_end = quantiles.window_end
  AND sums.edge = quantiles.edge;
