package logdex.interop.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Answers questions with the real Kafka storage classes.
 *
 * <p>One JSON object a line on standard input, one a line on standard output, in the same order. {@code op} names the operation. An
 * operation that throws answers {@code {"error": ...}} with the stack trace and the program goes on.
 */
public final class Driver {
    /** What answers one line. */
    @FunctionalInterface
    interface Operation {
        Map<String, ?> answer(JsonNode question) throws Exception;
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    private static final Map<String, Operation> OPERATIONS = Map.ofEntries(
        Map.entry("offset_index", Indexes::offsetIndex),
        Map.entry("time_index", Indexes::timeIndex),
        Map.entry("segment", Segments::ask),
        Map.entry("recover", Segments::recover),
        Map.entry("write", Writer::write),
        Map.entry("create_topics", Cluster::create),
        Map.entry("configure_topics", Cluster::configure),
        Map.entry("produce", Cluster::produce),
        Map.entry("consume", Cluster::consume),
        Map.entry("offsets", Cluster::offsets),
        Map.entry("groups", Cluster::groups),
        Map.entry("join", Cluster::join),
        Map.entry("rounds_write_segment", RoundsFiles::segment),
        Map.entry("rounds_write_index", RoundsFiles::offsetIndex),
        Map.entry("rounds_records", Rounds::records),
        Map.entry("rounds_headers", Rounds::headers),
        Map.entry("rounds_recover", Rounds::recover),
        Map.entry("rounds_lookup", Rounds::lookup),
        Map.entry("rounds_append", Appends::append));

    private Driver() {}

    private static Map<String, ?> answer(String line) {
        try {
            JsonNode question = JSON.readTree(line);
            Operation operation = OPERATIONS.get(question.get("op").asText());
            if (operation == null) {
                throw new IllegalArgumentException("unknown operation: " + question.get("op"));
            }
            return operation.answer(question);
        } catch (Exception | LinkageError e) {
            var trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            return Map.of("error", trace.toString());
        }
    }

    /**
     * Answers standard input line by line until it ends.
     *
     * @param arguments none
     * @throws IOException if the standard streams fail
     */
    public static void main(String[] arguments) throws IOException {
        var answers = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        System.setOut(System.err);
        var questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(JSON.writeValueAsString(answer(line)));
            answers.flush();
        }
    }
}
