package logdex.interop.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TimestampOffset;

/** The real index classes over single files: sanity check, entries, lookups. The files are opened for reading. */
final class Indexes {
    private Indexes() {}

    static Map<String, ?> offsetIndex(JsonNode question) throws Exception {
        var index = new OffsetIndex(new File(question.get("path").asText()), question.get("base").asLong(), -1, false);
        try {
            index.sanityCheck();
            List<long[]> entries = new ArrayList<>();
            for (int slot = 0; slot < index.entries(); slot++) {
                entries.add(pair(index.entry(slot)));
            }
            List<long[]> answers = new ArrayList<>();
            for (JsonNode target : question.get("targets")) {
                answers.add(pair(index.lookup(target.asLong())));
            }
            return Map.of("entries", entries, "answers", answers, "full", index.isFull());
        } finally {
            index.closeHandler();
        }
    }

    static Map<String, ?> timeIndex(JsonNode question) throws Exception {
        var index = new TimeIndex(new File(question.get("path").asText()), question.get("base").asLong(), -1, false);
        try {
            index.sanityCheck();
            List<long[]> entries = new ArrayList<>();
            for (int slot = 0; slot < index.entries(); slot++) {
                entries.add(pair(index.entry(slot)));
            }
            List<long[]> answers = new ArrayList<>();
            for (JsonNode target : question.get("targets")) {
                answers.add(pair(index.lookup(target.asLong())));
            }
            return Map.of("entries", entries, "answers", answers, "full", index.isFull());
        } finally {
            index.closeHandler();
        }
    }

    private static long[] pair(OffsetPosition entry) {
        return new long[] {entry.offset, entry.position};
    }

    private static long[] pair(TimestampOffset entry) {
        return new long[] {entry.timestamp, entry.offset};
    }
}
