package logdex.interop.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.storage.internals.log.OffsetIndex;

/** Files for the rounds of {@code make bench-report}, written by the real classes. The same question makes the same file. */
final class RoundsFiles {
    /** Of the records of a batch before they are compressed: batch.size of a producer. */
    private static final int BATCH_BYTES = 16_384;
    /** What a record takes beside its value, at most: lengths, deltas, key, header. */
    private static final int BESIDE_VALUE = 60;
    private static final int FIELD_DIGITS = 48;
    private static final byte[] NEXT_FIELD = "\",\"attribute\":\"".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);
    private static final long T0 = 1_700_000_000_000L;

    private RoundsFiles() {}

    /**
     * path, bytes, codec, value_bytes: a segment of at least so many bytes. Ten records a millisecond; keys of 24 bytes, a header of
     * 16 bytes of noise, values that look like JSON.
     */
    static Map<String, ?> segment(JsonNode question) throws IOException {
        long bytes = question.get("bytes").asLong();
        int valueBytes = question.get("value_bytes").asInt();
        Compression compression = Compression.of(CompressionType.forName(question.get("codec").asText())).build();
        int perBatch = BATCH_BYTES / (valueBytes + BESIDE_VALUE);
        ByteBuffer buffer = ByteBuffer.allocate(2 * BATCH_BYTES);
        long offset = 0;
        long raw = 0;
        int batches = 0;
        try (FileRecords file = FileRecords.open(new File(question.get("path").asText()), true)) {
            while (file.sizeInBytes() < bytes) {
                buffer.clear();
                MemoryRecordsBuilder builder = MemoryRecords.builder(
                    buffer, RecordBatch.MAGIC_VALUE_V2, compression, TimestampType.CREATE_TIME, offset);
                for (int record = 0; record < perBatch; record++, offset++) {
                    builder.append(T0 + offset / 10, key(offset), value(offset, valueBytes), headers(offset));
                }
                MemoryRecords records = builder.build();
                raw += builder.uncompressedBytesWritten();
                batches++;
                file.append(records);
            }
            return Map.of("records", offset, "batches", batches, "size", file.sizeInBytes(), "raw", raw);
        }
    }

    /** path, entries: a full offset index, an entry for every hundred offsets. */
    static Map<String, ?> offsetIndex(JsonNode question) throws IOException {
        int entries = question.get("entries").asInt();
        var index = new OffsetIndex(new File(question.get("path").asText()), 0, 8 * entries, true);
        for (int entry = 1; entry <= entries; entry++) {
            index.append(100L * entry, 1_600 * entry);
        }
        boolean full = index.isFull();
        index.close();
        return Map.of("full", full);
    }

    private static byte[] key(long number) {
        return "customer-%015d".formatted(Rounds.mix(number) >>> 16).getBytes(StandardCharsets.US_ASCII);
    }

    private static byte[] value(long number, int length) {
        long noise = Rounds.mix(~number);
        String begin = "{\"order\":%d,\"status\":\"%s\",\"amount\":%d.%02d,\"note\":\"".formatted(
            number, (noise & 1) == 0 ? "paid" : "open", (noise >>> 1 & 1023), (noise >>> 11 & 63));
        var text = new byte[length];
        byte[] field = begin.getBytes(StandardCharsets.US_ASCII);
        for (int at = 0; at < length - 2; ) {
            int named = Math.min(field.length, length - 2 - at);
            System.arraycopy(field, 0, text, at, named);
            at += named;
            for (int digit = 0; digit < FIELD_DIGITS && at < length - 2; digit++, at++) {
                if ((digit & 15) == 0) {
                    noise = Rounds.mix(noise);
                }
                text[at] = HEX[(int) (noise >>> 4 * (digit & 15)) & 15];
            }
            field = NEXT_FIELD;
        }
        text[length - 2] = '"';
        text[length - 1] = '}';
        return text;
    }

    private static Header[] headers(long number) {
        byte[] noise = ByteBuffer.allocate(16).putLong(Rounds.mix(3 * number)).putLong(Rounds.mix(3 * number + 1)).array();
        return new Header[] {new RecordHeader("trace-id", noise)};
    }
}
