package skua.stream;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.functions.AggregateFunction;
import org.apache.flink.types.Row;

/**
 * Of round-trip times by class: the first class, by µs, with which half, 95% and 99% of all times are reached; none
 * without any time. Classes of several lines are added up by their µs.
 */
@DataTypeHint("ROW<p50_us BIGINT, p95_us BIGINT, p99_us BIGINT>")
public class Quantiles extends AggregateFunction<Row, Quantiles.Classes> {
    /** How many times there are of each class. */
    public static class Classes {
        @DataTypeHint("MAP<BIGINT, BIGINT>")
        public Map<Long, Long> times = new HashMap<>();
    }

    @Override
    public Classes createAccumulator() {
        return new Classes();
    }

    /** Adds a line's. */
    public void accumulate(Classes all, @DataTypeHint("ARRAY<ROW<us BIGINT, times BIGINT>>") Row[] classes) {
        if (classes == null) return;
        for (Row one : classes) all.times.merge((Long) one.getField(0), (Long) one.getField(1), Long::sum);
    }

    /** Adds what was added up elsewhere. */
    public void merge(Classes all, Iterable<Classes> others) {
        for (Classes other : others) other.times.forEach((us, times) -> all.times.merge(us, times, Long::sum));
    }

    @Override
    public Row getValue(Classes all) {
        TreeMap<Long, Long> sorted = new TreeMap<>(all.times);
        long count = sorted.values().stream().mapToLong(times -> times).sum();
        return Row.of(quantile(sorted, count, 50), quantile(sorted, count, 95), quantile(sorted, count, 99));
    }

    private static Long quantile(TreeMap<Long, Long> sorted, long count, long percent) {
        long upTo = 0;
        for (Map.Entry<Long, Long> one : sorted.entrySet()) {
            upTo += one.getValue();
            if (upTo * 100 >= count * percent) return one.getKey();
        }
        return null;
    }
}
