package logdex.interop;

import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.store.index.IndexFile;

/**
 * The real IndexFile's part of {@code make bench-report}: whole files and millions of lookups. Keys are made here, by the rule that
 * benches/support/keys.rs and benches/report/keys.py have as well; making them is outside the time taken.
 */
final class Rounds {
    private static final byte[] TOPIC = "TopicTest#".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] DIGITS = "0123456789ABCDEF".getBytes(StandardCharsets.US_ASCII);
    private static final long ABSENT = 1L << 61;
    private static final long T0 = 1_700_000_000_000L;

    /** Those of the last put, whose hashes they remember by now. */
    private String[] put = {};

    /**
     * path, geometry, held, keep: puts keys 0 to held - 1 into a new file. With {@code hashed}, strings that know their hash: the same
     * objects as in the put before.
     */
    Map<String, ?> put(JSONObject question) throws IOException {
        int held = question.getIntValue("held");
        if (!question.getBooleanValue("hashed") || put.length != held) {
            put = new String[held];
            for (int i = 0; i < held; i++) {
                put[i] = key(i);
            }
        }
        System.gc();
        IndexFile file = IndexFiles.open(question);
        int taken = 0;
        long start = System.nanoTime();
        for (int i = 0; i < held; i++) {
            if (file.putKey(put[i], 1024L * i, T0 + i / 10)) {
                taken++;
            }
        }
        long elapsed = System.nanoTime() - start;
        Internals.close(file);
        if (!question.getBooleanValue("keep")) {
            Files.delete(Path.of(question.getString("path")));
        }
        return Map.of("seconds", elapsed / 1e9, "taken", taken);
    }

    /**
     * path, geometry, held, asked, round, present, max_num: lookups as the real service makes them, one list each. With {@code cold},
     * the first touch of each page is part of the time.
     */
    Map<String, ?> select(JSONObject question) throws IOException {
        int held = question.getIntValue("held");
        int asked = question.getIntValue("asked");
        int maxNum = question.getIntValue("max_num");
        long first = 777_000_000L + question.getLongValue("round") * asked;
        long from = question.getBooleanValue("present") ? 0 : ABSENT;
        long opening = System.nanoTime();
        IndexFile file = IndexFiles.open(question);
        long opened = System.nanoTime() - opening;
        if (!question.getBooleanValue("cold")) {
            // The first pass maps the pages, as a broker that runs has them.
            IndexFiles.select(file, keys(held, asked, first, from), maxNum);
        }
        String[] keys = keys(held, asked, first, from);
        System.gc();
        long start = System.nanoTime();
        IndexFiles.Found found = IndexFiles.select(file, keys, maxNum);
        long elapsed = System.nanoTime() - start;
        Internals.close(file);
        return Map.of("seconds", elapsed / 1e9, "found", found.offsets(), "sum", found.sum(), "open", opened / 1e9);
    }

    private static String[] keys(int held, int asked, long first, long from) {
        var keys = new String[asked];
        for (int query = 0; query < asked; query++) {
            keys[query] = key(from + Long.remainderUnsigned(mix(first + query), held));
        }
        return keys;
    }

    private static String key(long number) {
        var text = new byte[TOPIC.length + 32];
        System.arraycopy(TOPIC, 0, text, 0, TOPIC.length);
        hex(text, TOPIC.length, mix(2 * number));
        hex(text, TOPIC.length + 16, mix(2 * number + 1));
        return new String(text, StandardCharsets.US_ASCII);
    }

    private static void hex(byte[] text, int from, long value) {
        for (int i = 15; i >= 0; i--) {
            text[from + 15 - i] = DIGITS[(int) (value >>> 4 * i) & 15];
        }
    }

    /** One step of splitmix64. */
    private static long mix(long seed) {
        long z = seed + 0x9E3779B97F4A7C15L;
        z = (z ^ z >>> 30) * 0xBF58476D1CE4E5B9L;
        z = (z ^ z >>> 27) * 0x94D049BB133111EBL;
        return z ^ z >>> 31;
    }
}
