package logdex.wire;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/** Answers standard input: one JSON object a line there, one a line on standard output, with a result or a refusal. */
final class Lines {
    /** What answers a question. */
    interface Answers {
        Object answer(JSONObject question) throws Exception;
    }

    private Lines() {}

    private static String line(String text, Answers answers) {
        Map<String, Object> said = new HashMap<>();
        try {
            said.put("result", answers.answer(JSON.parseObject(text)));
        } catch (Exception e) {
            said.put("refused", e.getClass().getSimpleName());
            said.put("text", String.valueOf(e.getMessage()));
            if (e instanceof MQBrokerException refused) {
                said.put("code", refused.getResponseCode());
            } else if (e instanceof MQClientException refused) {
                said.put("code", refused.getResponseCode());
            }
        }
        return JSON.toJSONString(said, SerializerFeature.BrowserCompatible, SerializerFeature.WriteMapNullValue);
    }

    /** Answers line by line until standard input ends, and ends the program. */
    static void answer(Answers answers) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String text; (text = input.readLine()) != null; ) {
            output.println(line(text, answers));
        }
        Runtime.getRuntime().halt(0);
    }
}
