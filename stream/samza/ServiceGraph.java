// The service graph as a job of Samza: a compatibility check of the topic's schema. docs/kafka.md has the definition of the
// rows, and says why Flink is the engine. It keeps open windows in memory and begins with the oldest lines each time.
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.InvalidProtocolBufferException;
import java.util.*;
import org.apache.samza.application.TaskApplication;
import org.apache.samza.config.MapConfig;
import org.apache.samza.runtime.*;
import org.apache.samza.serializers.ByteSerde;
import org.apache.samza.system.*;
import org.apache.samza.system.kafka.descriptors.KafkaSystemDescriptor;
import org.apache.samza.task.*;
import org.apache.samza.context.Context;
import skua.collect.v1.*;

public class ServiceGraph implements StreamTask, InitableTask, WindowableTask {
    static final long WINDOW_MS = 60_000, LATE_MS = 30_000;
    static final ObjectMapper JSON = new ObjectMapper();
    static SystemStream graph;

    /** Sums of an edge in a window. */
    static class Sums {
        ObjectNode row;
        TreeMap<Long, Long> classes = new TreeMap<>();

        void add(String name, long more) { row.put(name, row.path(name).asLong() + more); }

        long quantile(long percent) {
            long all = classes.values().stream().mapToLong(times -> times).sum(), below = 0;
            for (var one : classes.entrySet()) {
                below += one.getValue();
                if (below * 100 >= all * percent)
                    return Math.min(Math.max(one.getKey(), row.get("rtt_min_us").asLong()), row.get("rtt_max_us").asLong());
            }
            return 0;
        }
    }

    /** Windows by their begin, edges by their key. */
    final TreeMap<Long, Map<ObjectNode, Sums>> open = new TreeMap<>();
    /** The newest line of each partition. */
    final Map<SystemStreamPartition, Long> newest = new HashMap<>();
    int partitions;

    public void init(Context context) {
        partitions = context.getTaskContext().getTaskModel().getSystemStreamPartitions().size();
    }

    /** No line before this moment is expected. */
    long watermark() {
        return newest.size() < partitions ? 0 : Collections.min(newest.values()) - LATE_MS;
    }

    public void process(IncomingMessageEnvelope envelope, MessageCollector to, TaskCoordinator coordinator) {
        Line line;
        try {
            line = Line.parseFrom((byte[]) envelope.getMessage());
        } catch (InvalidProtocolBufferException error) {
            return;
        }
        if (line.getVersion() != 1) return;
        long ms = line.getWindowNs() / 1_000_000, begin = ms - ms % WINDOW_MS;
        if (begin + WINDOW_MS - 1 <= watermark()) return;
        newest.merge(envelope.getSystemStreamPartition(), ms, Math::max);
        ObjectNode key = JSON.createObjectNode().put("window_ms", begin).put("protocol", line.getProtocol())
            .put("client_service", line.getClientService())
            .put("client_address", line.getClientService().isEmpty() ? line.getClientAddress() : "")
            .put("server_service", line.getServerService())
            .put("server_address", line.getServerService().isEmpty() ? line.getServerAddress() : "")
            .put("port", line.getPort());
        Sums sums = open.computeIfAbsent(begin, at -> new HashMap<>()).computeIfAbsent(key, edge -> new Sums());
        if (sums.row == null)
            sums.row = key.deepCopy().put("first_ms", ms).put("rtt_min_us", 0L).put("rtt_max_us", 0L);
        sums.add("client_packets", line.getClientPackets());
        sums.add("client_bytes", line.getClientBytes());
        sums.add("server_packets", line.getServerPackets());
        sums.add("server_bytes", line.getServerBytes());
        sums.add("client_retransmitted", line.getClientRetransmitted());
        sums.add("server_retransmitted", line.getServerRetransmitted());
        sums.add("connections", line.getBegun());
        sums.add("ended", line.getEnded());
        sums.add("reset", line.getReset());
        sums.add("refused", line.getRefused());
        sums.add("timed_out", line.getTimedOut());
        sums.add("samples", line.getSamples());
        long before = sums.row.path("rtt_count").asLong(), least = sums.row.get("rtt_min_us").asLong();
        if (line.getRtts() > 0) {
            sums.row.put("rtt_min_us", before == 0 ? line.getRttMinUs() : Math.min(least, line.getRttMinUs()));
            sums.row.put("rtt_max_us", Math.max(sums.row.get("rtt_max_us").asLong(), line.getRttMaxUs()));
        }
        sums.add("rtt_count", line.getRtts());
        sums.add("rtt_sum_us", line.getRttSumUs());
        for (RttClass one : line.getRttClassesList()) sums.classes.merge(one.getUs(), one.getTimes(), Long::sum);
        sums.row.put("first_ms", Math.min(sums.row.get("first_ms").asLong(), ms));
        long end = (line.getWindowNs() + line.getLengthNs()) / 1_000_000;
        sums.row.put("last_ms", Math.max(sums.row.path("last_ms").asLong(), end));
    }

    /** Now and then: writes the windows that are over. */
    public void window(MessageCollector to, TaskCoordinator coordinator) throws Exception {
        while (!open.isEmpty() && open.firstKey() + WINDOW_MS - 1 <= watermark())
            for (var edge : open.pollFirstEntry().getValue().entrySet()) {
                Sums sums = edge.getValue();
                for (long percent : new long[] {50, 95, 99}) sums.row.put("rtt_p" + percent + "_us", sums.quantile(percent));
                to.send(new OutgoingMessageEnvelope(graph, JSON.writeValueAsBytes(edge.getKey()), JSON.writeValueAsBytes(sums.row)));
            }
    }

    /** BROKERS, topic of lines, topic of the graph, folder for what Samza keeps. */
    public static void main(String[] arguments) {
        String brokers = arguments[0], prefix = "org.apache.samza.";
        graph = new SystemStream("kafka", arguments[2]);
        var kafka = new KafkaSystemDescriptor("kafka").withConsumerZkConnect(List.of("127.0.0.1:1"))
            .withProducerBootstrapServers(List.of(brokers)).withDefaultStreamConfigs(Map.of("replication.factor", "1"));
        TaskApplication application = described -> described
            .withInputStream(kafka.getInputDescriptor(arguments[1], new ByteSerde()))
            .withOutputStream(kafka.getOutputDescriptor(arguments[2], new ByteSerde()))
            .withTaskFactory((StreamTaskFactory) ServiceGraph::new);
        var runner = ApplicationRunners.getApplicationRunner(application, new MapConfig(Map.ofEntries(
            Map.entry("app.name", "skua-service-graph"), Map.entry("app.id", "1"),
            Map.entry("job.name", "skua-service-graph"), Map.entry("job.id", "1"), Map.entry("processor.id", "0"),
            Map.entry("app.runner.class", prefix + "runtime.LocalApplicationRunner"),
            Map.entry("job.coordinator.factory", prefix + "standalone.PassthroughJobCoordinatorFactory"),
            Map.entry("job.coordination.utils.factory", prefix + "standalone.PassthroughCoordinationUtilsFactory"),
            Map.entry("task.name.grouper.factory", prefix + "container.grouper.task.SingleContainerGrouperFactory"),
            // An edge may be in several partitions: one task has all of them.
            Map.entry("job.systemstreampartition.grouper.factory", prefix + "container.grouper.stream.AllSspToSingleTaskGrouperFactory"),
            Map.entry("job.default.system", "kafka"), Map.entry("systems.kafka.samza.factory", prefix + "system.kafka.KafkaSystemFactory"),
            Map.entry("systems.kafka.consumer.bootstrap.servers", brokers),
            Map.entry("systems.kafka.default.stream.samza.offset.default", "oldest"),
            Map.entry("job.logged.store.base.dir", arguments[3]), Map.entry("job.non-logged.store.base.dir", arguments[3]),
            Map.entry("task.window.ms", "1000"))));
        runner.run();
        runner.waitForFinish();
    }
}
