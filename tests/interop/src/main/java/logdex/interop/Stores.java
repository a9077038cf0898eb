package logdex.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexService;
import org.apache.rocketmq.store.index.QueryOffsetResult;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Operations on a store directory: its index alone, or the whole of it. One is open at a time, the one loaded last. */
final class Stores {
    private DefaultMessageStore store;
    private IndexService service;

    /** root, config: opens the index directory under root with an index service of its own, after a clean exit. */
    Map<String, ?> loadIndex(JSONObject question) throws IOException {
        store = null;
        service = new IndexService(newStore(question));
        return Map.of("ok", service.load(true), "files", Internals.headers(service));
    }

    /** topics, keys, uniq_keys, phy_offsets, store_timestamps, sys_flags: what a dispatcher hands to the loaded service. */
    Map<String, ?> buildIndex(JSONObject question) {
        String[] topics = question.getObject("topics", String[].class);
        String[] keys = question.getObject("keys", String[].class);
        String[] uniqKeys = question.getObject("uniq_keys", String[].class);
        long[] phyOffsets = question.getObject("phy_offsets", long[].class);
        long[] storeTimestamps = question.getObject("store_timestamps", long[].class);
        int[] sysFlags = question.getObject("sys_flags", int[].class);
        for (int i = 0; i < topics.length; i++) {
            service.buildIndex(
                new DispatchRequest(
                    topics[i], 0, phyOffsets[i], 0, 0, storeTimestamps[i], 0, keys[i], uniqKeys[i], sysFlags[i], 0, null));
        }
        return Map.of("files", Internals.headers(service));
    }

    /** topics, keys, max_num, begin, end (one of each a question): the service's offsets in its own order. */
    Map<String, ?> queryIndex(JSONObject question) {
        var answers = new ArrayList<List<Long>>();
        QueryOffsetResult last = null;
        for (Query query : Query.all(question)) {
            last = service.queryOffset(query.topic, query.key, query.maxNum, query.begin, query.end);
            answers.add(last.getPhyOffsets());
        }
        return Map.of(
            "phy_offsets", answers,
            "index_last_update_timestamp", last == null ? 0 : last.getIndexLastUpdateTimestamp(),
            "index_last_update_phyoffset", last == null ? 0 : last.getIndexLastUpdatePhyoffset());
    }

    /** root, config (properties of the store by the names in a broker's configuration): loads everything, starts nothing. */
    Map<String, ?> load(JSONObject question) throws IOException {
        store = newStore(question);
        service = Internals.indexService(store);
        boolean ok = store.load();
        return Map.of("ok", ok, "max_phy_offset", store.getMaxPhyOffset(), "files", Internals.headers(service));
    }

    /** Starts the services of the loaded store, and waits until everything in the log is dispatched. */
    Map<String, ?> start(JSONObject question) throws Exception {
        store.start();
        settle(store.getMaxPhyOffset());
        return state();
    }

    /** messages (see {@link Messages}): puts them one by one, waits until they are dispatched, says where they lie. */
    Map<String, ?> put(JSONObject question) throws InterruptedException, IOException {
        JSONArray messages = question.getJSONArray("messages");
        var results = new ArrayList<Map<String, ?>>();
        for (int i = 0; i < messages.size(); i++) {
            results.add(Messages.put(store, messages.getJSONObject(i)));
        }
        settle(Messages.end(results));
        return Map.of("results", results, "state", state());
    }

    /** messages of one topic and queue: puts them as one batch, waits until they are dispatched, says where the first lies. */
    Map<String, ?> putBatch(JSONObject question) throws InterruptedException, IOException {
        Map<String, ?> result = Messages.putBatch(store, question.getJSONArray("messages"));
        settle(Messages.end(List.of(result)));
        return result;
    }

    /** threads: each puts messages of its own until the process ends, which is how a broker is when it is killed. */
    Map<String, ?> putOn(JSONObject question) {
        for (int thread = 0; thread < question.getIntValue("threads"); thread++) {
            new Thread(new Traffic(store, thread), "traffic-" + thread).start();
        }
        return Map.of();
    }

    /** The end of the log, how far dispatch is behind it, and the delay levels' offsets as the schedule service keeps them. */
    Map<String, ?> state(JSONObject question) {
        return Map.of(
            "min_phy_offset", store.getMinPhyOffset(),
            "max_phy_offset", store.getMaxPhyOffset(),
            "dispatch_behind", store.dispatchBehindBytes(),
            "delay_offsets", store.getScheduleMessageService().encode());
    }

    /** Every queue with its bounds. */
    Map<String, ?> queues(JSONObject question) {
        return Map.of("queues", Contents.queues(store));
    }

    /** Every message of every queue. */
    Map<String, ?> messages(JSONObject question) {
        return Map.of("messages", Contents.messages(store));
    }

    /** phy_offsets: the message at each. */
    Map<String, ?> at(JSONObject question) {
        return Map.of("messages", Contents.at(store, question));
    }

    /** topics, keys, max_num, begin, end (one of each a question): the offsets of the messages that the store itself returns. */
    Map<String, ?> query(JSONObject question) {
        var answers = new ArrayList<List<Long>>();
        for (Query query : Query.all(question)) {
            QueryMessageResult result = store.queryMessage(query.topic, query.key, query.maxNum, query.begin, query.end);
            var offsets = new ArrayList<Long>();
            for (ByteBuffer frame : result.getMessageBufferList()) {
                MessageExt message = MessageDecoder.decode(frame.duplicate(), false);
                offsets.add(message.getCommitLogOffset());
            }
            result.release();
            answers.add(offsets);
        }
        return Map.of("phy_offsets", answers);
    }

    /** Shuts the started store down, cleanly. */
    Map<String, ?> stop(JSONObject question) {
        Map<String, ?> state = state();
        store.shutdown();
        if (!Internals.isShutDown(store)) {
            throw new IllegalStateException("the store did not shut down");
        }
        return state;
    }

    private Map<String, ?> state() {
        return Map.of("max_phy_offset", store.getMaxPhyOffset(), "files", Internals.headers(service));
    }

    /** Waits until the log is dispatched up to an offset. A store with a buffer pool counts its log only up to what it wrote. */
    private void settle(long end) throws InterruptedException {
        long patience = System.nanoTime() + 20_000_000_000L;
        while (store.getMaxPhyOffset() < end || store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > patience) {
                throw new IllegalStateException("the log is still not dispatched up to " + end);
            }
            Thread.sleep(1);
        }
    }

    /** root, config (properties of the store by the names in a broker's configuration): a store on that directory. */
    static DefaultMessageStore newStore(JSONObject question) throws IOException {
        var config = new MessageStoreConfig();
        var properties = new Properties();
        JSONObject given = question.getJSONObject("config");
        Properties known = MixAll.object2Properties(config);
        for (String name : given.keySet()) {
            if (!known.containsKey(name)) {
                throw new IllegalArgumentException("the store has no property " + name);
            }
            properties.setProperty(name, given.getString(name));
        }
        MixAll.properties2Object(properties, config);
        String root = question.getString("root");
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + File.separator + "commitlog");
        // The replication service listens in any case: on whatever port is free.
        config.setHaListenPort(0);
        return new DefaultMessageStore(
            config, new BrokerStatsManager("interop", false), (t, q, o, c, s, b, p) -> {}, new BrokerConfig());
    }

    /** One question. */
    private record Query(String topic, String key, int maxNum, long begin, long end) {
        static List<Query> all(JSONObject question) {
            String[] topics = question.getObject("topics", String[].class);
            String[] keys = question.getObject("keys", String[].class);
            int[] maxNum = question.getObject("max_num", int[].class);
            long[] begin = question.getObject("begin", long[].class);
            long[] end = question.getObject("end", long[].class);
            var queries = new ArrayList<Query>(keys.length);
            for (int i = 0; i < keys.length; i++) {
                queries.add(new Query(topics[i], keys[i], maxNum[i], begin[i], end[i]));
            }
            return queries;
        }
    }
}
