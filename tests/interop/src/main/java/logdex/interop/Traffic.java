package logdex.interop;

import com.alibaba.fastjson.JSONObject;
import java.net.UnknownHostException;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Puts numbered messages of all sizes as fast as it can, until the process ends or the store refuses. */
record Traffic(DefaultMessageStore store, int thread) implements Runnable {
    @Override
    public void run() {
        try {
            for (int serial = 0; ; serial++) {
                Messages.put(store, message(serial));
            }
        } catch (UnknownHostException | RuntimeException e) {
            e.printStackTrace();
        }
    }

    private JSONObject message(int serial) {
        String id = "TRAFFIC" + thread + "-" + serial;
        return new JSONObject(
            Map.of(
                "topic", "Traffic" + serial % 3,
                "queue_id", serial % 4,
                "body", id.repeat(1 + serial % 37),
                "properties", new JSONObject(Map.of("UNIQ_KEY", id, "KEYS", "tens-" + serial / 10, "TAGS", "tag" + serial % 5))));
    }
}
