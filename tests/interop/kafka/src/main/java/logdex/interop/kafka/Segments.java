package logdex.interop.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/** The real LogSegment over a partition's directory. */
final class Segments {
    private static final int DAY_MS = 86_400_000;

    private Segments() {}

    static LogConfig config(JsonNode question) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("index.interval.bytes", question.get("index_interval_bytes").asText());
        settings.put("segment.index.bytes", question.get("max_index_bytes").asText());
        return new LogConfig(settings);
    }

    static LogSegment open(JsonNode question, boolean exists) throws IOException {
        var directory = new File(question.get("dir").asText());
        return LogSegment.open(
            directory, question.get("base").asLong(), config(question), Time.SYSTEM, exists, 0, false, "");
    }

    /** Sanity checks of both indexes, and what the segment answers for offsets and times. */
    static Map<String, ?> ask(JsonNode question) throws Exception {
        LogSegment segment = open(question, true);
        try {
            segment.offsetIndex().sanityCheck();
            segment.timeIndex().sanityCheck();
            List<long[]> offsets = new ArrayList<>();
            for (JsonNode target : question.get("offsets")) {
                var found = segment.translateOffset(target.asLong());
                offsets.add(found == null ? null : new long[] {found.offset, found.position, found.size});
            }
            List<long[]> times = new ArrayList<>();
            for (JsonNode target : question.get("times")) {
                var found = segment.findOffsetByTimestamp(target.asLong(), segment.baseOffset());
                times.add(found.isEmpty() ? null : new long[] {found.get().timestamp, found.get().offset});
            }
            return Map.of("offsets", offsets, "times", times, "next", segment.readNextOffset());
        } finally {
            segment.close();
        }
    }

    /** Lets the segment rebuild its indexes and cut its log, as a broker does after a crash. */
    static Map<String, ?> recover(JsonNode question) throws Exception {
        LogSegment segment = open(question, true);
        try {
            var directory = new File(question.get("dir").asText());
            var producers = new ProducerStateManager(
                new TopicPartition("recovered", 0), directory, DAY_MS, new ProducerStateManagerConfig(DAY_MS, false), Time.SYSTEM);
            return Map.of("cut", segment.recover(producers, Optional.empty()));
        } finally {
            segment.close();
        }
    }
}
