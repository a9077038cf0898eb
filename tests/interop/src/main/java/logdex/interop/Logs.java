package logdex.interop;

import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** The broker's own decoder over whole commit logs: its part of {@code make bench-report}. */
final class Logs {
    private static final int BLANK_MAGIC = 0xCBD43194;

    /** The files of each log, mapped as a broker has them mapped; they stay so between the questions. */
    private final Map<String, List<ByteBuffer>> mapped = new HashMap<>();

    /** path, body: decodes every message, with its body or without. The decoder checks no checksum. */
    Map<String, ?> decode(JSONObject question) throws IOException {
        boolean body = question.getBooleanValue("body");
        String path = question.getString("path");
        if (!mapped.containsKey(path)) {
            mapped.put(path, map(Path.of(path)));
        }
        System.gc();
        long rows = 0;
        long sum = 0;
        long start = System.nanoTime();
        for (ByteBuffer file : mapped.get(path)) {
            ByteBuffer frames = file.duplicate();
            while (frames.remaining() >= 8 && frames.getInt(frames.position() + 4) != BLANK_MAGIC) {
                MessageExt message = MessageDecoder.decode(frames, body, body);
                rows++;
                sum += message.getQueueOffset();
            }
        }
        long elapsed = System.nanoTime() - start;
        return Map.of("seconds", elapsed / 1e9, "rows", rows, "sum", sum);
    }

    private static List<ByteBuffer> map(Path directory) throws IOException {
        List<Path> paths;
        try (var files = Files.list(directory)) {
            paths = files.sorted().toList();
        }
        var maps = new ArrayList<ByteBuffer>();
        for (Path path : paths) {
            try (var file = FileChannel.open(path, StandardOpenOption.READ)) {
                maps.add(file.map(FileChannel.MapMode.READ_ONLY, 0, file.size()));
            }
        }
        return maps;
    }
}
