package logdex.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Makes messages as a broker hands them to its store.
 *
 * <p>A message is described by topic, and where they differ from the defaults queue_id, body (text) or body_base64, properties,
 * properties_text (in their place, as it is), flag, sys_flag, born_timestamp, born_host and store_host ({@code 10.0.0.1:10911}, {@code
 * [2001:db8::1]:10911}), reconsume_times, prepared_transaction_offset. Its delay level is its property DELAY.
 */
final class Messages {
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private Messages() {}

    /** Puts one message and says where it lies; a refusal is an error, unless {@code refused} asks for its name. */
    static Map<String, ?> put(DefaultMessageStore store, JSONObject given) throws UnknownHostException {
        PutMessageResult result = store.putMessage(of(given));
        if (!result.isOk()) {
            if (given.getBooleanValue("refused")) {
                return Map.of("refused", result.getPutMessageStatus().name());
            }
            throw new IllegalStateException("the store did not take the message: " + result.getPutMessageStatus());
        }
        return where(result);
    }

    /** Puts messages of one topic and queue as a client's batch; all but body, flag and properties are the first one's. */
    static Map<String, ?> putBatch(DefaultMessageStore store, JSONArray given) throws UnknownHostException {
        PutMessageResult result = store.putMessages(batch(given));
        if (!result.isOk()) {
            throw new IllegalStateException("the store did not take the batch: " + result.getPutMessageStatus());
        }
        var answer = new LinkedHashMap<String, Object>(where(result));
        answer.put("msg_ids", result.getAppendMessageResult().getMsgId());
        return answer;
    }

    /** The offset behind the last of the messages put. */
    static long end(List<Map<String, ?>> results) {
        Map<String, ?> last = results.get(results.size() - 1);
        return ((Number) last.get("phy_offset")).longValue() + ((Number) last.get("store_size")).longValue();
    }

    static MessageExtBrokerInner of(JSONObject given) throws UnknownHostException {
        var message = new MessageExtBrokerInner();
        describe(message, given);
        message.setBody(body(given));
        JSONObject properties = given.getJSONObject("properties");
        for (String name : properties == null ? List.<String>of() : properties.keySet()) {
            MessageAccessor.putProperty(message, name, properties.getString(name));
        }
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, message.getTags()));
        String text = given.getString("properties_text");
        message.setPropertiesString(text != null ? text : MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static MessageExtBatch batch(JSONArray given) throws UnknownHostException {
        var wrapper = new MessageExtBatch();
        describe(wrapper, given.getJSONObject(0));
        var inner = new ArrayList<Message>(given.size());
        for (int i = 0; i < given.size(); i++) {
            JSONObject one = given.getJSONObject(i);
            var message = new Message(wrapper.getTopic(), body(one));
            message.setFlag(one.getIntValue("flag"));
            JSONObject properties = one.getJSONObject("properties");
            for (String name : properties == null ? List.<String>of() : properties.keySet()) {
                MessageAccessor.putProperty(message, name, properties.getString(name));
            }
            inner.add(message);
        }
        wrapper.setBody(MessageDecoder.encodeMessages(inner));
        return wrapper;
    }

    private static void describe(MessageExt message, JSONObject given) throws UnknownHostException {
        message.setTopic(given.getString("topic"));
        message.setQueueId(given.getIntValue("queue_id"));
        message.setFlag(given.getIntValue("flag"));
        message.setSysFlag(given.getIntValue("sys_flag"));
        Long born = given.getLong("born_timestamp");
        message.setBornTimestamp(born == null ? System.currentTimeMillis() : born);
        message.setBornHost(host(given.getString("born_host")));
        message.setStoreHost(host(given.getString("store_host")));
        message.setReconsumeTimes(given.getIntValue("reconsume_times"));
        message.setPreparedTransactionOffset(given.getLongValue("prepared_transaction_offset"));
    }

    private static byte[] body(JSONObject given) {
        String encoded = given.getString("body_base64");
        if (encoded != null) {
            return Base64.getDecoder().decode(encoded);
        }
        String text = given.getString("body");
        return text == null ? new byte[0] : text.getBytes(StandardCharsets.UTF_8);
    }

    private static InetSocketAddress host(String text) throws UnknownHostException {
        if (text == null) {
            return HOST;
        }
        int colon = text.lastIndexOf(':');
        String address = text.substring(0, colon);
        if (address.startsWith("[")) {
            address = address.substring(1, address.length() - 1);
        }
        // A literal address: no name is looked up.
        return new InetSocketAddress(InetAddress.getByName(address), Integer.parseInt(text.substring(colon + 1)));
    }

    private static Map<String, ?> where(PutMessageResult result) {
        var appended = result.getAppendMessageResult();
        return Map.of(
            "phy_offset", appended.getWroteOffset(),
            "store_size", appended.getWroteBytes(),
            "store_timestamp", appended.getStoreTimestamp(),
            "queue_offset", appended.getLogicsOffset());
    }
}
