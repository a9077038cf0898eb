package logdex.wire;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs commands of the real {@code mqadmin}: the arguments as a JSON array a line, the output as a JSON object a line. */
public final class Tools {
    private Tools() {}

    /**
     * Runs the commands of standard input until it ends.
     *
     * @param arguments none
     */
    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = input.readLine()) != null; ) {
            var said = new ByteArrayOutputStream();
            var output = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(output);
            System.setErr(output);
            MQAdminStartup.main0(JSON.parseArray(line).toArray(new String[0]), null);
            output.flush();
            answers.println(
                JSON.toJSONString(Map.of("output", said.toString(StandardCharsets.UTF_8)), SerializerFeature.BrowserCompatible));
        }
        Runtime.getRuntime().halt(0);
    }
}
