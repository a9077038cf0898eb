package logdex.interop;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MappedFile;
import org.apache.rocketmq.store.index.IndexFile;
import org.apache.rocketmq.store.index.IndexHeader;
import org.apache.rocketmq.store.index.IndexService;

/** What the real classes keep in private fields. */
final class Internals {
    private Internals() {}

    private static <T> T field(Object owner, String name, Class<T> type) {
        try {
            Field field = owner.getClass().getDeclaredField(name);
            field.setAccessible(true);
            return type.cast(field.get(owner));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(owner.getClass() + " has no readable field " + name, e);
        }
    }

    static IndexService indexService(DefaultMessageStore store) {
        return field(store, "indexService", IndexService.class);
    }

    static boolean isShutDown(DefaultMessageStore store) {
        return field(store, "shutdown", Boolean.class);
    }

    /** Ends the thread that dispatches; all that is in the log is dispatched by then. */
    static void stopDispatch(DefaultMessageStore store) {
        field(store, "reputMessageService", ServiceThread.class).shutdown();
    }

    /** Does in this thread what the stopped one does: dispatches all that is in the log. */
    static void dispatch(DefaultMessageStore store) {
        Object service = field(store, "reputMessageService", ServiceThread.class);
        try {
            Method round = service.getClass().getDeclaredMethod("doReput");
            round.setAccessible(true);
            round.invoke(service);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(service.getClass() + " does not dispatch", e);
        }
    }

    /** Unmaps and closes an index file; the real class can only do that by deleting the file as well. */
    static void close(IndexFile file) throws IOException {
        MappedFile mapped = field(file, "mappedFile", MappedFile.class);
        mapped.shutdown(0);
        mapped.getFileChannel().close();
    }

    /** The files of a service in its own order, oldest first, by the header that the service goes by. */
    static List<Map<String, Object>> headers(IndexService service) {
        var headers = new ArrayList<Map<String, Object>>();
        for (Object file : field(service, "indexFileList", ArrayList.class)) {
            headers.add(header((IndexFile) file));
        }
        return headers;
    }

    static Map<String, Object> header(IndexFile file) {
        IndexHeader header = field(file, "indexHeader", IndexHeader.class);
        var values = new LinkedHashMap<String, Object>();
        values.put("name", new File(file.getFileName()).getName());
        values.put("begin_timestamp", header.getBeginTimestamp());
        values.put("end_timestamp", header.getEndTimestamp());
        values.put("begin_phy_offset", header.getBeginPhyOffset());
        values.put("end_phy_offset", header.getEndPhyOffset());
        values.put("hash_slot_count", header.getHashSlotCount().get());
        values.put("index_count", header.getIndexCount());
        values.put("full", file.isWriteFull());
        return values;
    }
}
