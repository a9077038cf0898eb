package logdex.interop.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.RequestLocal;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.Option;

/** Appends to a partition as a producer and the partition's leader do: {@code MemoryRecordsBuilder}, {@code UnifiedLog}. */
final class Appends {
    private static final int BATCH_BYTES = 16_384;
    private static final int MINUTE_MS = 60_000;
    private static final int DAY_MS = 24 * 60 * MINUTE_MS;

    private Appends() {}

    /** A record whose parts are on the heap, as a producer's caller has them. */
    private record Given(long timestamp, byte[] key, byte[] value, Header[] headers) {}

    /**
     * path, dir, codec, segment_bytes: appends the records of a segment to a new log, in batches of as many records as there.
     * Only building and appending is timed, on one thread.
     */
    static Map<String, ?> append(JsonNode question) throws Exception {
        List<List<Given>> batches = batches(new File(question.get("path").asText()));
        Compression compression = Compression.of(CompressionType.forName(question.get("codec").asText())).build();
        var settings = new Properties();
        settings.put("segment.bytes", question.get("segment_bytes").asText());
        var scheduler = new KafkaScheduler(1);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.apply(
            new File(question.get("dir").asText()), new LogConfig(settings), 0, 0, scheduler, new BrokerTopicStats(false), Time.SYSTEM,
            5 * MINUTE_MS, new ProducerStateManagerConfig(DAY_MS, false), 10 * MINUTE_MS, new LogDirFailureChannel(1), true,
            Option.empty(), true, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        ByteBuffer buffer = ByteBuffer.allocate(2 * BATCH_BYTES);
        long records = 0;
        long start = System.nanoTime();
        for (List<Given> batch : batches) {
            buffer.clear();
            MemoryRecordsBuilder builder =
                MemoryRecords.builder(buffer, RecordBatch.MAGIC_VALUE_V2, compression, TimestampType.CREATE_TIME, 0);
            for (Given each : batch) {
                builder.append(each.timestamp, each.key, each.value, each.headers);
            }
            log.appendAsLeader(
                builder.build(), 0, AppendOrigin.CLIENT, MetadataVersion.latestProduction(), RequestLocal.withThreadConfinedCaching(),
                VerificationGuard.SENTINEL);
            records += batch.size();
        }
        long elapsed = System.nanoTime() - start;
        long size = log.size();
        log.close();
        scheduler.shutdown();
        return Map.of("seconds", elapsed / 1e9, "records", records, "batches", batches.size(), "size", size);
    }

    private static List<List<Given>> batches(File path) throws IOException {
        var batches = new ArrayList<List<Given>>();
        try (FileRecords file = FileRecords.open(path, false)) {
            for (RecordBatch batch : file.batches()) {
                var records = new ArrayList<Given>();
                for (Record record : batch) {
                    records.add(new Given(
                        record.timestamp(), Utils.toNullableArray(record.key()), Utils.toNullableArray(record.value()), record.headers()));
                }
                batches.add(records);
            }
        }
        return batches;
    }
}
