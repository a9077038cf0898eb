package logdex.interop;

import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;

/** What a store holds, by its own answers: queue by queue, and offset by offset. */
final class Contents {
    private static final int AT_ONCE = 32;

    private Contents() {}

    /** Every queue with its bounds, sorted by topic and number. */
    static List<Map<String, ?>> queues(DefaultMessageStore store) {
        var tables = new TreeMap<String, Map<Integer, ConsumeQueue>>(store.getConsumeQueueTable());
        var queues = new ArrayList<Map<String, ?>>();
        for (var table : tables.entrySet()) {
            for (int queueId : new TreeMap<>(table.getValue()).keySet()) {
                queues.add(
                    Map.of(
                        "topic", table.getKey(),
                        "queue_id", queueId,
                        "min", store.getMinOffsetInQueue(table.getKey(), queueId),
                        "max", store.getMaxOffsetInQueue(table.getKey(), queueId)));
            }
        }
        return queues;
    }

    /** Every message of every queue, as consumers pull them; the offset at which each lies in its queue is {@code at}. */
    static List<Map<String, ?>> messages(DefaultMessageStore store) {
        var rows = new ArrayList<Map<String, ?>>();
        for (Map<String, ?> queue : queues(store)) {
            pull(store, (String) queue.get("topic"), (int) queue.get("queue_id"), rows);
        }
        return rows;
    }

    private static void pull(DefaultMessageStore store, String topic, int queueId, List<Map<String, ?>> rows) {
        long at = store.getMinOffsetInQueue(topic, queueId);
        while (at < store.getMaxOffsetInQueue(topic, queueId)) {
            GetMessageResult got = store.getMessage("interop", topic, queueId, at, AT_ONCE, null);
            if (got.getStatus() != GetMessageStatus.FOUND) {
                throw new IllegalStateException(topic + " " + queueId + " at " + at + ": " + got.getStatus());
            }
            for (ByteBuffer frame : got.getMessageBufferList()) {
                MessageExt message = MessageDecoder.decode(frame.duplicate(), true, false);
                Map<String, Object> row = row(message);
                row.put("at", at++);
                row.put("pulled_from", topic + " " + queueId);
                rows.add(row);
            }
            if (got.getNextBeginOffset() != at) {
                throw new IllegalStateException(
                    topic + " " + queueId + ": goes on at " + got.getNextBeginOffset() + ", expected " + at);
            }
            got.release();
        }
    }

    /** phy_offsets: the message at each; null where the store has none. */
    static List<Map<String, ?>> at(DefaultMessageStore store, JSONObject question) {
        var rows = new ArrayList<Map<String, ?>>();
        for (long offset : question.getObject("phy_offsets", long[].class)) {
            MessageExt message = store.lookMessageByOffset(offset);
            rows.add(message == null ? null : row(message));
        }
        return rows;
    }

    private static Map<String, Object> row(MessageExt message) {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        var row = new LinkedHashMap<String, Object>();
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("phy_offset", message.getCommitLogOffset());
        row.put("store_timestamp", message.getStoreTimestamp());
        row.put("born_timestamp", message.getBornTimestamp());
        row.put("msg_id", message.getMsgId());
        row.put("uniq_key", message.getProperty("UNIQ_KEY"));
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("body", Base64.getEncoder().encodeToString(body));
        row.put("properties", message.getProperties());
        row.put("flag", message.getFlag());
        row.put("sys_flag", message.getSysFlag());
        row.put("store_size", message.getStoreSize());
        row.put("body_crc", message.getBodyCRC());
        row.put("reconsume_times", message.getReconsumeTimes());
        row.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
        row.put("born_host", host(message.getBornHost()));
        row.put("store_host", host(message.getStoreHost()));
        return row;
    }

    private static Map<String, ?> host(SocketAddress address) {
        var socket = (InetSocketAddress) address;
        return Map.of("address", socket.getAddress().getHostAddress(), "port", socket.getPort());
    }
}
