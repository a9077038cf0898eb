package logdex.wire;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends with the real producers: one JSON object a line on standard input, one a line on standard output.
 *
 * <p>{@code op} names the operation. A send is answered by its status, queue, queue offset and both ids.
 */
public final class Producers {
    private final String address;
    private final AtomicInteger instances = new AtomicInteger();
    /** What was checked: the key, and how often. */
    private final Map<String, Integer> checked = new ConcurrentHashMap<>();

    private DefaultMQProducer producer;
    private TransactionMQProducer transactions;

    private Producers(String address) {
        this.address = address;
    }

    private <T extends DefaultMQProducer> T configured(T client) {
        client.setNamesrvAddr(address);
        client.setClientIP("127.0.0.1");
        client.setInstanceName("i" + instances.incrementAndGet());
        client.setHeartbeatBrokerInterval(2000);
        client.setSendMsgTimeout(20_000);
        client.setRetryTimesWhenSendFailed(0);
        return client;
    }

    private DefaultMQProducer producer() throws MQClientException {
        if (producer == null) {
            producer = configured(new DefaultMQProducer("wire-producer"));
            producer.start();
        }
        return producer;
    }

    /** A producer whose local transaction ends as its argument says, and later as the message's property {@code later} says. */
    private TransactionMQProducer transactions() throws MQClientException {
        if (transactions == null) {
            transactions = configured(new TransactionMQProducer("wire-transactions"));
            transactions.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                    return LocalTransactionState.valueOf((String) state);
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    checked.merge(message.getKeys(), 1, Integer::sum);
                    return LocalTransactionState.valueOf(message.getUserProperty("later"));
                }
            });
            transactions.start();
        }
        return transactions;
    }

    private static Message message(JSONObject q, int number) {
        String body = q.getString("body") + "-" + number;
        Message message = new Message(q.getString("topic"), q.getString("tags"), q.getString("key"), body.getBytes(StandardCharsets.UTF_8));
        if (q.containsKey("delay")) {
            message.setDelayTimeLevel(q.getIntValue("delay"));
        }
        if (q.containsKey("later")) {
            message.putUserProperty("later", q.getString("later"));
        }
        if (q.containsKey("size")) {
            message.setBody(new byte[q.getIntValue("size")]);
        }
        return message;
    }

    private static List<Object> place(SendResult sent) {
        // That of a transaction has no offset id.
        return Arrays.asList(
            sent.getSendStatus(), sent.getMessageQueue().getQueueId(), sent.getQueueOffset(), sent.getOffsetMsgId(), sent.getMsgId());
    }

    private Object answer(JSONObject q) throws Exception {
        int n = Math.max(1, q.getIntValue("n"));
        List<Object> found = new ArrayList<>();
        switch (q.getString("op")) {
            case "send":
                for (int i = 0; i < n; i++) {
                    found.add(place(producer().send(message(q, i))));
                }
                return found;
            case "queue":
                for (int i = 0; i < n; i++) {
                    var queue = new MessageQueue(q.getString("topic"), q.getString("broker"), q.getIntValue("queueId"));
                    found.add(place(producer().send(message(q, i), queue)));
                }
                return found;
            case "async": {
                List<CompletableFuture<Object>> waiting = new ArrayList<>();
                for (int i = 0; i < n; i++) {
                    var done = new CompletableFuture<Object>();
                    waiting.add(done);
                    producer().send(message(q, i), callback(done));
                }
                for (CompletableFuture<Object> each : waiting) {
                    found.add(each.get(30, TimeUnit.SECONDS));
                }
                return found;
            }
            case "oneway":
                for (int i = 0; i < n; i++) {
                    producer().sendOneway(message(q, i));
                }
                return n;
            case "batch": {
                List<Message> batch = new ArrayList<>();
                for (int i = 0; i < n; i++) {
                    batch.add(message(q, i));
                }
                return place(producer().send(batch));
            }
            case "transaction":
                return place(transactions().sendMessageInTransaction(message(q, 0), q.getString("state")));
            case "checked":
                return checked;
            case "measureSync":
                return measureSync(q);
            case "measureAsync":
                return measureAsync(q);
            default:
                throw new IllegalArgumentException(q.getString("op"));
        }
    }

    private static SendCallback callback(CompletableFuture<Object> done) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                done.complete(place(sent));
            }

            @Override
            public void onException(Throwable error) {
                done.complete(List.of(String.valueOf(error)));
            }
        };
    }

    /** Sends with some threads, each message after the last one's answer; answers messages, failures and seconds. */
    private Object measureSync(JSONObject q) throws Exception {
        DefaultMQProducer sender = producer();
        AtomicLong sent = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        long begin = System.nanoTime();
        long end = begin + q.getLongValue("seconds") * 1_000_000_000L;
        for (int i = 0; i < q.getIntValue("threads"); i++) {
            Thread thread = new Thread(() -> {
                while (System.nanoTime() < end) {
                    try {
                        sender.send(message(q, 0));
                        sent.incrementAndGet();
                    } catch (Exception e) {
                        failed.incrementAndGet();
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return List.of(sent.get(), failed.get(), (System.nanoTime() - begin) / 1e9);
    }

    /** Sends without waiting, but with at most so many under way; answers messages, failures and seconds. */
    private Object measureAsync(JSONObject q) throws Exception {
        DefaultMQProducer sender = producer();
        AtomicLong sent = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        int most = q.getIntValue("under_way");
        Semaphore free = new Semaphore(most);
        long begin = System.nanoTime();
        long end = begin + q.getLongValue("seconds") * 1_000_000_000L;
        while (System.nanoTime() < end) {
            free.acquire();
            sender.send(message(q, 0), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.incrementAndGet();
                    free.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed.incrementAndGet();
                    free.release();
                }
            });
        }
        free.acquire(most);
        return List.of(sent.get(), failed.get(), (System.nanoTime() - begin) / 1e9);
    }

    /**
     * Answers standard input line by line until it ends.
     *
     * @param arguments the address of the name server
     */
    public static void main(String[] arguments) throws Exception {
        Lines.answer(new Producers(arguments[0])::answer);
    }
}
