package logdex.wire;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Asks a name server's address with the real clients: one JSON object a line on standard input, one a line on standard output.
 *
 * <p>{@code op} names the operation. A message is answered by where it is in the log. {@code -Dtls=true} speaks TLS,
 * {@code -DaccessKey=} and {@code -DsecretKey=} sign.
 */
public final class Clients {
    private final String address;
    private final Map<String, DefaultMQPullConsumer> pullers = new HashMap<>();
    private final AtomicInteger instances = new AtomicInteger();
    private DefaultMQProducer producer;

    private Clients(String address) {
        this.address = address;
    }

    private static RPCHook hook() {
        String key = System.getProperty("accessKey");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, System.getProperty("secretKey")));
    }

    private <T extends org.apache.rocketmq.client.ClientConfig> T configured(T client) {
        client.setNamesrvAddr(address);
        client.setUseTLS(Boolean.getBoolean("tls"));
        client.setClientIP("127.0.0.1");
        client.setInstanceName("i" + instances.incrementAndGet());
        client.setHeartbeatBrokerInterval(2000);
        return client;
    }

    private DefaultMQProducer producer() throws MQClientException {
        if (producer == null) {
            producer = configured(new DefaultMQProducer("wire-producer", hook()));
            producer.start();
        }
        return producer;
    }

    private DefaultMQPullConsumer puller(String group) throws MQClientException {
        DefaultMQPullConsumer consumer = pullers.get(group);
        if (consumer == null) {
            consumer = configured(new DefaultMQPullConsumer(group, hook()));
            consumer.start();
            pullers.put(group, consumer);
        }
        return consumer;
    }

    private static Long place(MessageExt message) {
        return message == null ? null : message.getCommitLogOffset();
    }

    private static List<Long> places(List<MessageExt> messages) {
        List<Long> found = new ArrayList<>();
        if (messages != null) {
            messages.forEach(message -> found.add(place(message)));
        }
        return found;
    }

    private Object answer(JSONObject q) throws Exception {
        String topic = q.getString("topic");
        String group = q.getString("group");
        String expression = q.containsKey("tags") ? q.getString("tags") : "*";
        MessageQueue queue = new MessageQueue(topic, q.getString("broker"), q.getIntValue("queueId"));
        switch (q.getString("op")) {
            case "push":
                return push(q, topic, group, expression);
            case "lite":
                return lite(q, topic, group, expression);
            case "pull": {
                int max = q.containsKey("max") ? q.getIntValue("max") : 32;
                PullResult pulled = puller(group).pull(queue, expression, q.getLongValue("offset"), max);
                return Map.of(
                    "status", pulled.getPullStatus(), "next", pulled.getNextBeginOffset(), "messages", places(pulled.getMsgFoundList()));
            }
            case "drain": {
                long count = 0;
                long sum = 0;
                PullResult pulled = puller(group).pull(queue, expression, 0, 32);
                while (pulled.getPullStatus() == PullStatus.FOUND) {
                    count += pulled.getMsgFoundList().size();
                    for (MessageExt message : pulled.getMsgFoundList()) {
                        sum += message.getCommitLogOffset();
                    }
                    pulled = puller(group).pull(queue, expression, pulled.getNextBeginOffset(), 32);
                }
                return List.of(count, sum);
            }
            case "offsets": {
                DefaultMQPullConsumer consumer = puller(group);
                return List.of(consumer.minOffset(queue), consumer.maxOffset(queue), consumer.earliestMsgStoreTime(queue),
                    consumer.searchOffset(queue, q.getLongValue("time")));
            }
            case "commit":
                puller(group).getDefaultMQPullConsumerImpl().getOffsetStore()
                    .updateConsumeOffsetToBroker(queue, q.getLongValue("offset"), false);
                return puller(group).fetchConsumeOffset(queue, true);
            case "queues": {
                List<Integer> ids = new ArrayList<>();
                puller(group).fetchSubscribeMessageQueues(topic).forEach(each -> ids.add(each.getQueueId()));
                Collections.sort(ids);
                return ids;
            }
            case "key":
                return places(producer().queryMessage(topic, q.getString("key"), 64, 0, Long.MAX_VALUE).getMessageList());
            case "unique":
                return place(producer().getDefaultMQProducerImpl().queryMessageByUniqKey(topic, q.getString("key")));
            case "id":
                return place(producer().viewMessage(topic, q.getString("key")));
            case "send":
                return producer().send(new Message(topic, "body".getBytes(StandardCharsets.UTF_8))).getSendStatus();
            case "measurePulls":
                return measurePulls(q, topic, group);
            case "measureQueries":
                return measureQueries(q, topic);
            default:
                throw new IllegalArgumentException(q.getString("op"));
        }
    }

    private static void sleep(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private Object push(JSONObject q, String topic, String group, String expression) throws Exception {
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        List<List<Long>> got = new ArrayList<>();
        AtomicInteger count = new AtomicInteger();
        for (int i = 0; i < Math.max(1, q.getIntValue("consumers")); i++) {
            DefaultMQPushConsumer consumer =
                configured(new DefaultMQPushConsumer(group, hook(), new AllocateMessageQueueAveragely()));
            List<Long> mine = Collections.synchronizedList(new ArrayList<>());
            got.add(mine);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setMessageModel(q.getBooleanValue("broadcast") ? MessageModel.BROADCASTING : MessageModel.CLUSTERING);
            consumer.setPersistConsumerOffsetInterval(500);
            consumer.setMaxReconsumeTimes(q.containsKey("most") ? q.getIntValue("most") : -1);
            consumer.subscribe(topic, expression);
            if (q.getBooleanValue("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    mine.addAll(places(messages));
                    count.addAndGet(messages.size());
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    sleep(q.getIntValue("each"));
                    if (q.containsKey("back") && messages.get(0).getReconsumeTimes() < q.getIntValue("back")) {
                        context.setDelayLevelWhenNextConsume(1);
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                    mine.addAll(places(messages));
                    count.addAndGet(messages.size());
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            consumer.start();
            consumers.add(consumer);
        }
        long end = System.currentTimeMillis() + q.getIntValue("seconds") * 1000L;
        while (System.currentTimeMillis() < end && count.get() < q.getIntValue("want")) {
            sleep(20);
        }
        // What comes twice would come now.
        sleep(q.getIntValue("linger"));
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        return got;
    }

    private Object lite(JSONObject q, String topic, String group, String expression) throws Exception {
        DefaultLitePullConsumer consumer = configured(new DefaultLitePullConsumer(group, hook()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (!q.getBooleanValue("assign")) {
            consumer.subscribe(topic, expression);
        }
        consumer.start();
        if (q.getBooleanValue("assign")) {
            consumer.assign(new ArrayList<>(consumer.fetchMessageQueues(topic)));
        }
        List<Long> got = new ArrayList<>();
        long end = System.currentTimeMillis() + q.getIntValue("seconds") * 1000L;
        while (System.currentTimeMillis() < end && got.size() < q.getIntValue("want")) {
            got.addAll(places(consumer.poll(200)));
        }
        consumer.commitSync();
        consumer.shutdown();
        return got;
    }

    /** Pulls queues from begin to end again and again, each by its own thread, for some seconds; answers messages and seconds. */
    private Object measurePulls(JSONObject q, String topic, String group) throws Exception {
        DefaultMQPullConsumer consumer = puller(group);
        AtomicLong messages = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        long begin = System.nanoTime();
        long end = begin + q.getLongValue("seconds") * 1_000_000_000L;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            Thread thread = new Thread(() -> {
                long offset = 0;
                while (System.nanoTime() < end) {
                    try {
                        PullResult pulled = consumer.pull(queue, "*", offset, 32);
                        List<MessageExt> found = pulled.getMsgFoundList();
                        messages.addAndGet(found == null ? 0 : found.size());
                        offset = found == null ? 0 : pulled.getNextBeginOffset();
                    } catch (Exception e) {
                        throw new IllegalStateException(e);
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return List.of(messages.get(), (System.nanoTime() - begin) / 1e9);
    }

    /** Asks for keys of a list, in turns, by some threads; answers queries, messages and seconds. */
    private Object measureQueries(JSONObject q, String topic) throws Exception {
        DefaultMQProducer asker = producer();
        List<String> keys = q.getJSONArray("keys").toJavaList(String.class);
        AtomicLong queries = new AtomicLong();
        AtomicLong messages = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        long begin = System.nanoTime();
        long end = begin + q.getLongValue("seconds") * 1_000_000_000L;
        for (int i = 0; i < q.getIntValue("threads"); i++) {
            Thread thread = new Thread(() -> {
                while (System.nanoTime() < end) {
                    String key = keys.get((int) (queries.incrementAndGet() % keys.size()));
                    try {
                        messages.addAndGet(asker.queryMessage(topic, key, 32, 0, Long.MAX_VALUE).getMessageList().size());
                    } catch (Exception e) {
                        throw new IllegalStateException(e);
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return List.of(queries.get(), messages.get(), (System.nanoTime() - begin) / 1e9);
    }

    /**
     * Answers standard input line by line until it ends.
     *
     * @param arguments the address of the name server
     */
    public static void main(String[] arguments) throws Exception {
        Lines.answer(new Clients(arguments[0])::answer);
    }
}
