package logdex.interop.kafka;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Lets groups commit offsets in every way, and prints what the broker then says of each: group, topic, partition, offset. */
public final class Groups {
    private static final String TOPIC = "orders";

    private Groups() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> address = Map.of("bootstrap.servers", args[0]);
        try (Admin admin = Admin.create(address)) {
            admin.createTopics(List.of(new NewTopic(TOPIC, 3, (short) 1))).all().get(60, TimeUnit.SECONDS);
            produce(address);
            commit(address, "plain", Map.of(0, 3L, 1, 7L));
            commit(address, "plain", Map.of(0, 5L));
            commit(address, "gone", Map.of(0, 1L, 2, 2L));
            transaction(address, "sure", Map.of(1, 4L), true);
            transaction(address, "unsure", Map.of(1, 6L), false);
            admin.deleteConsumerGroupOffsets("gone", Set.of(new TopicPartition(TOPIC, 2))).all().get(60, TimeUnit.SECONDS);
            for (String group : List.of("plain", "gone", "sure", "unsure")) {
                Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(group)
                        .partitionsToOffsetAndMetadata().get(60, TimeUnit.SECONDS);
                offsets.forEach((at, offset) -> System.out.printf("%s %s %d %d%n", group, at.topic(), at.partition(), offset.offset()));
            }
        }
    }

    private static void produce(Map<String, Object> address) {
        try (KafkaProducer<byte[], byte[]> producer = producer(address, Map.of())) {
            for (int number = 0; number < 30; number++) {
                producer.send(new ProducerRecord<>(TOPIC, number % 3, null, new byte[] {(byte) number}));
            }
        }
    }

    private static void commit(Map<String, Object> address, String group, Map<Integer, Long> offsets) {
        Map<String, Object> settings = new HashMap<>(address);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", false);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.commitSync(places(offsets), Duration.ofSeconds(60));
        }
    }

    private static void transaction(Map<String, Object> address, String group, Map<Integer, Long> offsets, boolean isCommitted) {
        try (KafkaProducer<byte[], byte[]> producer = producer(address, Map.of("transactional.id", group))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(places(offsets), new ConsumerGroupMetadata(group));
            if (isCommitted) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(Map<String, Object> address, Map<String, Object> more) {
        Properties settings = new Properties();
        settings.putAll(address);
        settings.putAll(more);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Map<TopicPartition, OffsetAndMetadata> places(Map<Integer, Long> offsets) {
        Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
        offsets.forEach((partition, offset) -> places.put(new TopicPartition(TOPIC, partition), new OffsetAndMetadata(offset, "note")));
        return places;
    }
}
