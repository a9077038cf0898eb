package logdex.interop;

import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.store.index.IndexFile;

/**
 * Times the real IndexFile. Both operations take the file's path and geometry, and the keys as the path of a text file, one a line.
 *
 * <p>The keys are read anew for every round, outside the time taken: a Java string remembers its hash, and a broker hashes every key
 * once.
 */
final class Bench {
    /** Also first_phy_offset, phy_offset_step, first_store_timestamp, and keys_per_ms: put i gets the values of step i. */
    Map<String, ?> put(JSONObject question) throws IOException {
        String[] keys = keys(question);
        long firstPhyOffset = question.getLongValue("first_phy_offset");
        long step = question.getLongValue("phy_offset_step");
        long firstStoreTimestamp = question.getLongValue("first_store_timestamp");
        int keysPerMs = question.getIntValue("keys_per_ms");
        IndexFile file = IndexFiles.open(question);
        int taken = 0;
        long start = System.nanoTime();
        for (int i = 0; i < keys.length; i++) {
            if (file.putKey(keys[i], firstPhyOffset + i * step, firstStoreTimestamp + i / keysPerMs)) {
                taken++;
            }
        }
        long elapsed = System.nanoTime() - start;
        Internals.close(file);
        return Map.of("seconds", elapsed / 1e9, "taken", taken);
    }

    /** Also max_num: all times, one list a key as the real service makes it. */
    Map<String, ?> select(JSONObject question) throws IOException {
        String[] keys = keys(question);
        int maxNum = question.getIntValue("max_num");
        IndexFile file = IndexFiles.open(question);
        long start = System.nanoTime();
        IndexFiles.Found found = IndexFiles.select(file, keys, maxNum);
        long elapsed = System.nanoTime() - start;
        Internals.close(file);
        return Map.of("seconds", elapsed / 1e9, "found", found.offsets(), "sum", found.sum());
    }

    private static String[] keys(JSONObject question) throws IOException {
        Path path = Path.of(question.getString("keys"));
        return Files.readAllLines(path, StandardCharsets.UTF_8).toArray(String[]::new);
    }
}
