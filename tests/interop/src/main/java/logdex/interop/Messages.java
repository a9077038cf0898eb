package logdex.interop;

import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/** Makes messages as a broker hands them to its store. */
final class Messages {
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private Messages() {}

    static Map<String, ?> put(DefaultMessageStore store, JSONObject given) {
        var message = new MessageExtBrokerInner();
        message.setTopic(given.getString("topic"));
        message.setQueueId(given.getIntValue("queue_id"));
        message.setBody(given.getString("body").getBytes(StandardCharsets.UTF_8));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        JSONObject properties = given.getJSONObject("properties");
        for (String name : properties.keySet()) {
            MessageAccessor.putProperty(message, name, properties.getString(name));
        }
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, message.getTags()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        PutMessageResult result = store.putMessage(message);
        if (!result.isOk()) {
            throw new IllegalStateException("the store did not take the message: " + result.getPutMessageStatus());
        }
        var appended = result.getAppendMessageResult();
        return Map.of(
            "phy_offset", appended.getWroteOffset(),
            "store_size", appended.getWroteBytes(),
            "store_timestamp", appended.getStoreTimestamp());
    }

    /** The offset behind the last of the messages put. */
    static long end(List<Map<String, ?>> results) {
        Map<String, ?> last = results.get(results.size() - 1);
        return ((Number) last.get("phy_offset")).longValue() + ((Number) last.get("store_size")).longValue();
    }
}
