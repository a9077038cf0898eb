package logdex.interop.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Topics, records and offsets of a running broker. */
final class Cluster {
    private static final long FIRST_TIME = 1_700_000_000_000L;

    private Cluster() {}

    private static Map<String, Object> properties(JsonNode question) {
        var properties = new HashMap<String, Object>();
        properties.put("bootstrap.servers", question.get("bootstrap").asText());
        question.path("config").properties().forEach(each -> properties.put(each.getKey(), each.getValue().asText()));
        return properties;
    }

    private static Map<String, String> settings(JsonNode fields) {
        var settings = new LinkedHashMap<String, String>();
        fields.properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    static Map<String, ?> create(JsonNode question) throws Exception {
        try (var admin = Admin.create(properties(question))) {
            var topics = new ArrayList<NewTopic>();
            for (var topic : question.get("topics").properties()) {
                int partitions = topic.getValue().get("partitions").asInt();
                topics.add(new NewTopic(topic.getKey(), partitions, (short) 1)
                    .configs(settings(topic.getValue().get("settings"))));
            }
            admin.createTopics(topics).all().get();
        }
        return Map.of();
    }

    static Map<String, ?> configure(JsonNode question) throws Exception {
        try (var admin = Admin.create(properties(question))) {
            var changes = new HashMap<ConfigResource, java.util.Collection<AlterConfigOp>>();
            for (var topic : question.get("topics")) {
                var operations = new ArrayList<AlterConfigOp>();
                settings(question.get("settings")).forEach((name, value) ->
                    operations.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
                changes.put(new ConfigResource(ConfigResource.Type.TOPIC, topic.asText()), operations);
            }
            admin.incrementalAlterConfigs(changes).all().get();
        }
        return Map.of();
    }

    /** Produces records that depend on the seed alone; with a transactional id, in transactions of which some are aborted. */
    static Map<String, ?> produce(JsonNode question) throws Exception {
        var properties = new Properties();
        properties.putAll(properties(question));
        String topic = question.get("topic").asText();
        int partitions = question.get("partitions").asInt();
        int first = question.get("first").asInt();
        int count = question.get("count").asInt();
        var random = new Random(question.get("seed").asLong());
        boolean isTransactional = properties.containsKey("transactional.id");
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<byte[], byte[]>(properties, serializer, serializer)) {
            if (isTransactional) {
                producer.initTransactions();
            }
            for (int number = first; number < first + count;) {
                int batch = Math.min(1 + random.nextInt(7), first + count - number);
                if (isTransactional) {
                    producer.beginTransaction();
                }
                for (int end = number + batch; number < end; number++) {
                    producer.send(record(topic, partitions, number, random));
                }
                producer.flush();
                if (isTransactional && random.nextInt(3) == 0) {
                    producer.abortTransaction();
                } else if (isTransactional) {
                    producer.commitTransaction();
                }
            }
        }
        return Map.of();
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int partitions, int number, Random random) {
        byte[] key = number % 11 == 10 ? null : ("key-" + number % 37).getBytes(StandardCharsets.UTF_8);
        byte[] value = null;
        if (number % 17 != 16) {
            var text = new StringBuilder("value " + number + ' ');
            for (int words = random.nextInt(30); words > 0; words--) {
                text.append("word").append(random.nextInt(50)).append(' ');
            }
            value = text.toString().getBytes(StandardCharsets.UTF_8);
        }
        long time = FIRST_TIME + 1000L * number - random.nextInt(3000);
        var record = new ProducerRecord<>(topic, number % partitions, time, key, value);
        if (number % 5 == 4) {
            record.headers().add(new RecordHeader("trace", ("t" + number % 13).getBytes(StandardCharsets.UTF_8)));
            record.headers().add(new RecordHeader("none", null));
        }
        return record;
    }

    static Map<String, ?> consume(JsonNode question) {
        var properties = properties(question);
        properties.put("isolation.level", question.get("isolation").asText());
        var deserializer = new ByteArrayDeserializer();
        var found = new ArrayList<Map<String, Object>>();
        try (var consumer = new KafkaConsumer<>(properties, deserializer, deserializer)) {
            var partitions = new ArrayList<TopicPartition>();
            for (var topic : question.get("topics")) {
                consumer.partitionsFor(topic.asText())
                    .forEach(each -> partitions.add(new TopicPartition(each.topic(), each.partition())));
            }
            partitions.sort((a, b) -> (a.topic() + a.partition()).compareTo(b.topic() + b.partition()));
            for (var partition : partitions) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long end = consumer.endOffsets(List.of(partition)).get(partition);
                while (consumer.position(partition) < end) {
                    consumer.poll(Duration.ofMillis(500)).forEach(each -> found.add(row(each)));
                }
            }
        }
        return Map.of("records", found);
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static Map<String, Object> row(ConsumerRecord<byte[], byte[]> record) {
        var row = new LinkedHashMap<String, Object>();
        row.put("topic", record.topic());
        row.put("partition", record.partition());
        row.put("offset", record.offset());
        row.put("timestamp", record.timestamp());
        row.put("leaderEpoch", record.leaderEpoch().orElse(null));
        row.put("key", base64(record.key()));
        row.put("value", base64(record.value()));
        var headers = new ArrayList<List<String>>();
        record.headers().forEach(each -> {
            var pair = new ArrayList<String>();
            pair.add(each.key());
            pair.add(base64(each.value()));
            headers.add(pair);
        });
        row.put("headers", headers);
        return row;
    }

    /** The offsets of each partition: the first, the first on the broker's disk, the last in remote storage, and the end. */
    static Map<String, ?> offsets(JsonNode question) throws Exception {
        var rows = new ArrayList<Map<String, Object>>();
        try (var admin = Admin.create(properties(question))) {
            var topics = new ArrayList<String>();
            question.get("topics").forEach(each -> topics.add(each.asText()));
            for (var topic : admin.describeTopics(topics).allTopicNames().get().values()) {
                for (var info : topic.partitions()) {
                    var partition = new TopicPartition(topic.name(), info.partition());
                    var row = new LinkedHashMap<String, Object>();
                    row.put("topic", topic.name());
                    row.put("partition", info.partition());
                    row.put("first", offset(admin, partition, OffsetSpec.earliest()));
                    row.put("firstLocal", offset(admin, partition, OffsetSpec.earliestLocal()));
                    row.put("lastTiered", offset(admin, partition, OffsetSpec.latestTiered()));
                    row.put("end", offset(admin, partition, OffsetSpec.latest()));
                    rows.add(row);
                }
            }
        }
        return Map.of("offsets", rows);
    }

    private static long offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }

    /** Group, topic, partition, offset, leader epoch and text of all commits, and the number of members of each group. */
    static Map<String, ?> groups(JsonNode question) throws Exception {
        var rows = new ArrayList<List<Object>>();
        try (var admin = Admin.create(properties(question))) {
            for (var group : admin.listConsumerGroups().all().get()) {
                var offsets = admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get();
                offsets.forEach((place, offset) -> rows.add(List.of(group.groupId(), place.topic(), place.partition(),
                    offset.offset(), offset.leaderEpoch().orElse(-1), offset.metadata())));
            }
        }
        return Map.of("offsets", rows);
    }

    /** The first records that a new member of a group gets. */
    static Map<String, ?> join(JsonNode question) {
        var properties = properties(question);
        properties.put("group.id", question.get("group").asText());
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        var deserializer = new ByteArrayDeserializer();
        var found = new ArrayList<Map<String, Object>>();
        try (var consumer = new KafkaConsumer<>(properties, deserializer, deserializer)) {
            consumer.subscribe(List.of(question.get("topic").asText()));
            for (int polls = 0; polls < 120 && found.isEmpty(); polls++) {
                consumer.poll(Duration.ofMillis(500)).forEach(each -> found.add(row(each)));
            }
        }
        return Map.of("records", found);
    }
}
