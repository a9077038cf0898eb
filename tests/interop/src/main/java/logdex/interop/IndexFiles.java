package logdex.interop;

import com.alibaba.fastjson.JSONObject;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.index.IndexFile;

/** Operations on single index files. Each opens the file, works, and unmaps it again. */
final class IndexFiles {
    private IndexFiles() {}

    /** Opens the file as the real service does: a new one with its seeds, one that is there by its header. */
    static IndexFile open(JSONObject question) throws IOException {
        String path = question.getString("path");
        boolean isNew = new File(path).length() == 0;
        var file = new IndexFile(
            path,
            question.getIntValue("hash_slots"),
            question.getIntValue("max_entries"),
            isNew ? question.getLongValue("begin_phy_offset") : 0,
            isNew ? question.getLongValue("begin_timestamp") : 0);
        if (!isNew) {
            file.load();
        }
        return file;
    }

    /** keys, phy_offsets, store_timestamps, flush: puts in order and says of each whether it was taken. */
    static Map<String, ?> put(JSONObject question) throws IOException {
        String[] keys = question.getObject("keys", String[].class);
        long[] phyOffsets = question.getObject("phy_offsets", long[].class);
        long[] storeTimestamps = question.getObject("store_timestamps", long[].class);
        IndexFile file = open(question);
        var taken = new ArrayList<Boolean>(keys.length);
        for (int i = 0; i < keys.length; i++) {
            taken.add(file.putKey(keys[i], phyOffsets[i], storeTimestamps[i]));
        }
        if (question.getBooleanValue("flush")) {
            file.flush();
        }
        Map<String, Object> header = Internals.header(file);
        Internals.close(file);
        return Map.of("taken", taken, "header", header);
    }

    /** keys, max_num, begin, end (one of each a question): the offsets of each, newest first. */
    static Map<String, ?> select(JSONObject question) throws IOException {
        String[] keys = question.getObject("keys", String[].class);
        int[] maxNum = question.getObject("max_num", int[].class);
        long[] begin = question.getObject("begin", long[].class);
        long[] end = question.getObject("end", long[].class);
        IndexFile file = open(question);
        var answers = new ArrayList<List<Long>>(keys.length);
        for (int i = 0; i < keys.length; i++) {
            var offsets = new ArrayList<Long>();
            file.selectPhyOffset(offsets, keys[i], maxNum[i], begin[i], end[i], false);
            answers.add(offsets);
        }
        Map<String, Object> header = Internals.header(file);
        Internals.close(file);
        return Map.of("phy_offsets", answers, "header", header);
    }

    /** How many offsets were found, and their sum. */
    record Found(long offsets, long sum) {}

    /** Looks all keys up, over all times, one list a key as the real service makes it. */
    static Found select(IndexFile file, String[] keys, int maxNum) {
        long found = 0;
        long sum = 0;
        for (String key : keys) {
            var offsets = new ArrayList<Long>(maxNum);
            file.selectPhyOffset(offsets, key, maxNum, 0, Long.MAX_VALUE, false);
            found += offsets.size();
            for (long offset : offsets) {
                sum += offset;
            }
        }
        return new Found(found, sum);
    }
}
