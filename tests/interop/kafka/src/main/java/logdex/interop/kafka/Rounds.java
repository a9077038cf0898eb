package logdex.interop.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.storage.internals.log.OffsetIndex;

/** The real classes' part of {@code make bench-report}: whole segments and millions of lookups. Each answers its own seconds. */
final class Rounds {
    private Rounds() {}

    /** What was touched, so that nothing is left out and all can be compared. */
    private static final class Touched {
        long records;
        /** Of offsets, timestamps and lengths. */
        long sum;
        /** Of first bytes. */
        long bytes;

        void record(Record record) {
            records++;
            sum += record.offset() + record.timestamp();
            field(record.key());
            field(record.value());
            for (Header header : record.headers()) {
                sum += header.key().length() + header.value().length;
                bytes += header.key().charAt(0) + header.value()[0];
            }
        }

        private void field(ByteBuffer field) {
            sum += field.remaining();
            bytes += field.get(field.position());
        }
    }

    /**
     * path, whole: reads every record as a consumer does, batch by batch, checksums compared. With {@code whole}, by the iterator that
     * decompresses a batch into a list first; else by the streaming one, with buffers that are used again.
     */
    static Map<String, ?> records(JsonNode question) throws IOException {
        boolean whole = question.path("whole").asBoolean();
        var touched = new Touched();
        long start = System.nanoTime();
        try (FileRecords file = FileRecords.open(new File(question.get("path").asText()), false);
            BufferSupplier buffers = BufferSupplier.create()) {
            for (RecordBatch batch : file.batches()) {
                batch.ensureValid();
                if (whole) {
                    for (Record record : batch) {
                        touched.record(record);
                    }
                } else {
                    try (CloseableIterator<Record> records = batch.streamingIterator(buffers)) {
                        while (records.hasNext()) {
                            touched.record(records.next());
                        }
                    }
                }
            }
        }
        long elapsed = System.nanoTime() - start;
        return Map.of("seconds", elapsed / 1e9, "records", touched.records, "sum", touched.sum, "bytes", touched.bytes);
    }

    /** path, crc: reads the heads of the batches, and with {@code crc} compares checksums. */
    static Map<String, ?> headers(JsonNode question) throws IOException {
        boolean crc = question.get("crc").asBoolean();
        long batches = 0;
        long sum = 0;
        long start = System.nanoTime();
        try (FileRecords file = FileRecords.open(new File(question.get("path").asText()), false)) {
            for (RecordBatch batch : file.batches()) {
                if (crc) {
                    batch.ensureValid();
                }
                batches++;
                sum += batch.baseOffset() + batch.lastOffset() + batch.maxTimestamp() + batch.sizeInBytes()
                    + batch.producerId() + batch.baseSequence();
            }
        }
        long elapsed = System.nanoTime() - start;
        return Map.of("seconds", elapsed / 1e9, "batches", batches, "sum", sum);
    }

    /** dir, base, index_interval_bytes, max_index_bytes: opens a segment, rebuilds its indexes as after a crash, closes it. */
    static Map<String, ?> recover(JsonNode question) throws Exception {
        long start = System.nanoTime();
        Map<String, ?> recovered = Segments.recover(question);
        long elapsed = System.nanoTime() - start;
        return Map.of("seconds", elapsed / 1e9, "cut", recovered.get("cut"));
    }

    /** path, asked, below, round: looks up offsets at random among those below the given one. */
    static Map<String, ?> lookup(JsonNode question) throws IOException {
        long[] targets = new long[question.get("asked").asInt()];
        long first = 777_000_000L + question.get("round").asLong() * targets.length;
        for (int query = 0; query < targets.length; query++) {
            targets[query] = Long.remainderUnsigned(mix(first + query), question.get("below").asLong());
        }
        var index = new OffsetIndex(new File(question.get("path").asText()), 0, -1, false);
        ask(index, targets); // the first pass maps the pages
        long start = System.nanoTime();
        long sum = ask(index, targets);
        long elapsed = System.nanoTime() - start;
        index.closeHandler();
        return Map.of("seconds", elapsed / 1e9, "sum", sum);
    }

    private static long ask(OffsetIndex index, long[] targets) {
        long sum = 0;
        for (long target : targets) {
            var found = index.lookup(target);
            sum += found.offset + found.position;
        }
        return sum;
    }

    /** One step of splitmix64. */
    static long mix(long seed) {
        long z = seed + 0x9E3779B97F4A7C15L;
        z = (z ^ z >>> 30) * 0xBF58476D1CE4E5B9L;
        z = (z ^ z >>> 27) * 0x94D049BB133111EBL;
        return z ^ z >>> 31;
    }
}
