package logdex.interop.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.storage.internals.log.LogSegment;

/** Writes a segment with the real classes: batch after batch, each an append of its own, then as a broker rolls it. */
final class Writer {
    private Writer() {}

    static Map<String, ?> write(JsonNode question) throws Exception {
        LogSegment segment = Segments.open(question, false);
        try {
            long offset = question.get("base").asLong();
            for (JsonNode batch : question.get("batches")) {
                MemoryRecordsBuilder builder = MemoryRecords.builder(
                    ByteBuffer.allocate(1 << 12),
                    RecordBatch.MAGIC_VALUE_V2,
                    Compression.of(CompressionType.forName(batch.get("codec").asText())).build(),
                    TimestampType.CREATE_TIME,
                    offset);
                for (JsonNode record : batch.get("records")) {
                    builder.append(record.get(0).asLong(), bytes(record.get(1)), bytes(record.get(2)));
                    offset++;
                }
                segment.append(offset - 1, builder.build());
            }
            segment.onBecomeInactiveSegment();
            return Map.of("size", segment.size());
        } finally {
            segment.close();
        }
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }
}
