package logdex.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Answers questions with the real RocketMQ store classes.
 *
 * <p>One JSON object a line on standard input, one a line on standard output, in the same order. {@code op} names the operation; a
 * question about many keys holds arrays, so that one line may ask thousands. An operation that throws answers {@code {"error": ...}}
 * with the stack trace and the program goes on. The operations are listed where they are registered below.
 */
public final class Driver {
    /** What answers one line. */
    @FunctionalInterface
    interface Operation {
        Map<String, ?> answer(JSONObject question) throws Exception;
    }

    private final Map<String, Operation> operations = new HashMap<>();

    private Driver() {
        var stores = new Stores();
        var bench = new Bench();
        var rounds = new Rounds();
        var logs = new Logs();
        var storeRounds = new StoreRounds();
        operations.put("index_file_put", IndexFiles::put);
        operations.put("index_file_select", IndexFiles::select);
        operations.put("index_load", stores::loadIndex);
        operations.put("index_build", stores::buildIndex);
        operations.put("index_query", stores::queryIndex);
        operations.put("store_load", stores::load);
        operations.put("store_start", stores::start);
        operations.put("store_put", stores::put);
        operations.put("store_put_batch", stores::putBatch);
        operations.put("store_put_on", stores::putOn);
        operations.put("store_state", stores::state);
        operations.put("store_queues", stores::queues);
        operations.put("store_messages", stores::messages);
        operations.put("store_at", stores::at);
        operations.put("store_query", stores::query);
        operations.put("store_stop", stores::stop);
        operations.put("bench_put", bench::put);
        operations.put("bench_select", bench::select);
        operations.put("rounds_put", rounds::put);
        operations.put("rounds_select", rounds::select);
        operations.put("rounds_decode", logs::decode);
        operations.put("rounds_store_put", storeRounds::put);
        operations.put("rounds_store_put_each", storeRounds::putEach);
    }

    private String answer(String line) {
        Map<String, ?> answer;
        try {
            JSONObject question = JSON.parseObject(line);
            Operation operation = operations.get(question.getString("op"));
            if (operation == null) {
                throw new IllegalArgumentException("unknown operation: " + question.getString("op"));
            }
            answer = operation.answer(question);
        } catch (Exception | LinkageError | AssertionError e) {
            var trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            answer = Map.of("error", trace.toString());
        }
        return JSON.toJSONString(answer, SerializerFeature.BrowserCompatible, SerializerFeature.DisableCircularReferenceDetect);
    }

    /**
     * Answers standard input line by line until it ends.
     *
     * @param arguments none
     * @throws IOException if the standard streams fail
     */
    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        // RocketMQ's own logger may write to standard output, which belongs to the answers.
        System.setOut(System.err);
        var driver = new Driver();
        var questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(driver.answer(line));
            answers.flush();
        }
        // A store that was loaded leaves threads behind that would keep the process alive.
        Runtime.getRuntime().halt(0);
    }
}
