package logdex.interop;

import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * The real store's part of {@code make bench-report}: messages put into a new store, and dispatched to queues and index.
 *
 * <p>The messages are those of a log, decoded anew for every round outside the time taken: a put writes into its message.
 */
final class StoreRounds {
    /**
     * root, config, source (a file of a log), count, batch: puts the first messages of the log into a new store, one by one with batch
     * 1, else as clients' batches, each of one topic and queue. Dispatch stands still until all are put, and is timed by itself; with
     * {@code running} it runs beside the puts, as in a broker, and what is timed by itself is how long it takes to catch up.
     */
    Map<String, ?> put(JSONObject question) throws Exception {
        int batch = question.getIntValue("batch");
        boolean running = question.getBooleanValue("running");
        List<MessageExt> source = read(Path.of(question.getString("source")), question.getIntValue("count"));
        List<MessageExtBrokerInner> singles = batch == 1 ? singles(source) : List.of();
        List<MessageExtBatch> batches = batch == 1 ? List.of() : batches(source, batch);
        source = null;
        DefaultMessageStore store = Stores.newStore(question);
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        if (!running) {
            Internals.stopDispatch(store);
        }
        System.gc();

        long start = System.nanoTime();
        for (MessageExtBrokerInner message : singles) {
            check(store.putMessage(message));
        }
        for (MessageExtBatch message : batches) {
            check(store.putMessages(message));
        }
        long put = System.nanoTime();
        if (running) {
            while (store.dispatchBehindBytes() > 0) {
                Thread.onSpinWait();
            }
        } else {
            Internals.dispatch(store);
        }
        long dispatched = System.nanoTime();

        long end = store.getMaxPhyOffset();
        long behind = store.dispatchBehindBytes();
        long units = Contents.queues(store).stream().mapToLong(queue -> (long) queue.get("max")).sum();
        store.shutdown();
        if (!question.getBooleanValue("keep")) {
            store.destroy();
            delete(Path.of(question.getString("root")));
        }
        return Map.of(
            "put", (put - start) / 1e9, "dispatch", (dispatched - put) / 1e9, "end", end, "behind", behind, "units", units);
    }

    /**
     * root, config, source (a file of a log), count, batch, threads, seconds: puts the messages into a new store, each thread its part,
     * or those of some seconds. Returns how long each put took, in ns, and by themselves those that began a file.
     */
    Map<String, ?> putEach(JSONObject question) throws Exception {
        int batch = question.getIntValue("batch");
        int threads = question.getIntValue("threads");
        long limit = question.getLongValue("seconds") * 1_000_000_000L;
        List<MessageExt> source = read(Path.of(question.getString("source")), question.getIntValue("count"));
        List<MessageExtBrokerInner> singles = batch == 1 ? singles(source) : List.of();
        List<MessageExtBatch> batches = batch == 1 ? List.of() : batches(source, batch);
        DefaultMessageStore store = Stores.newStore(question);
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        Internals.stopDispatch(store);
        System.gc();
        long fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        var puts = new ArrayList<Long>();
        var rolls = new ArrayList<Long>();
        var messages = new AtomicInteger();
        var failure = new AtomicReference<Throwable>();
        var running = new ArrayList<Thread>();
        long start = System.nanoTime();
        for (int thread = 0; thread < threads; thread++) {
            int first = thread;
            running.add(new Thread(() -> {
                var own = new ArrayList<Long>();
                var ownRolls = new ArrayList<Long>();
                try {
                    for (int at = first; at < Math.max(singles.size(), batches.size()); at += threads) {
                        long begin = System.nanoTime();
                        if (begin - start >= limit) {
                            break;
                        }
                        PutMessageResult result =
                            batch == 1 ? store.putMessage(singles.get(at)) : store.putMessages(batches.get(at));
                        long took = System.nanoTime() - begin;
                        check(result);
                        messages.addAndGet(result.getAppendMessageResult().getMsgNum());
                        own.add(took);
                        if (result.getAppendMessageResult().getWroteOffset() % fileSize == 0) {
                            ownRolls.add(took);
                        }
                    }
                } catch (Throwable error) {
                    failure.set(error);
                }
                synchronized (puts) {
                    puts.addAll(own);
                    rolls.addAll(ownRolls);
                }
            }));
        }
        running.forEach(Thread::start);
        for (Thread thread : running) {
            thread.join();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        store.shutdown();
        store.destroy();
        delete(Path.of(question.getString("root")));
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return Map.of("messages", messages.get(), "seconds", seconds, "puts", puts, "rolls", rolls);
    }

    private static void check(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("the store did not take a message: " + result.getPutMessageStatus());
        }
    }

    private static List<MessageExt> read(Path file, int count) throws IOException {
        ByteBuffer frames = ByteBuffer.wrap(Files.readAllBytes(file));
        var messages = new ArrayList<MessageExt>(count);
        while (messages.size() < count) {
            MessageExt message = MessageDecoder.decode(frames, true, false);
            if (message == null) {
                throw new IllegalArgumentException(file + " has only " + messages.size() + " messages");
            }
            messages.add(message);
        }
        return messages;
    }

    /** As the broker makes them: with the text of the properties. */
    private static List<MessageExtBrokerInner> singles(List<MessageExt> source) {
        var made = new ArrayList<MessageExtBrokerInner>(source.size());
        for (MessageExt message : source) {
            var inner = new MessageExtBrokerInner();
            describe(inner, message);
            inner.setBody(message.getBody());
            inner.setFlag(message.getFlag());
            MessageAccessor.setProperties(inner, message.getProperties());
            inner.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, message.getTags()));
            inner.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            made.add(inner);
        }
        return made;
    }

    /** As clients make them: messages of one topic and queue, encoded. */
    private static List<MessageExtBatch> batches(List<MessageExt> source, int size) {
        var queues = new LinkedHashMap<String, List<MessageExt>>();
        for (MessageExt message : source) {
            queues.computeIfAbsent(message.getTopic() + "-" + message.getQueueId(), queue -> new ArrayList<>()).add(message);
        }
        var made = new ArrayList<MessageExtBatch>();
        // In turns, as the messages themselves come.
        for (int from = 0; from < source.size(); from += size) {
            for (List<MessageExt> queue : queues.values()) {
                if (from < queue.size()) {
                    made.add(batch(queue.subList(from, Math.min(from + size, queue.size()))));
                }
            }
        }
        return made;
    }

    private static MessageExtBatch batch(List<MessageExt> messages) {
        var batch = new MessageExtBatch();
        describe(batch, messages.get(0));
        var inner = new ArrayList<Message>(messages);
        batch.setBody(MessageDecoder.encodeMessages(inner));
        return batch;
    }

    private static void describe(MessageExt made, MessageExt message) {
        made.setTopic(message.getTopic());
        made.setQueueId(message.getQueueId());
        made.setSysFlag(message.getSysFlag());
        made.setBornTimestamp(message.getBornTimestamp());
        made.setBornHost(message.getBornHost());
        made.setStoreHost(message.getStoreHost());
        made.setReconsumeTimes(message.getReconsumeTimes());
        made.setPreparedTransactionOffset(message.getPreparedTransactionOffset());
    }

    private static void delete(Path root) throws IOException {
        try (var paths = Files.walk(root)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }
}
