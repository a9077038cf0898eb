package logdex.storage;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * Runs a name node and a data node on loopback until its input ends: Hdfs DIRECTORY.
 *
 * <p>It prints the port, then "done" for each command: put NAME PATH, delete NAME; words are separated by tabs. Files in HDFS
 * get the times of the local files.
 */
public final class Hdfs {
    private static final int LEAST_BLOCK = 16384;

    private Hdfs() {}

    public static void main(String[] args) throws Exception {
        Configuration conf = new HdfsConfiguration();
        conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, args[0]);
        conf.setLong("dfs.namenode.fs-limits.min-block-size", LEAST_BLOCK);
        conf.set("dfs.permissions.enabled", "false");
        // How long a client waits for a block that the data node has not reported yet: 400 ms is too long for many small files.
        conf.set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "2");
        // A disk that is nearly full is no reason to refuse.
        conf.set("dfs.namenode.resource.du.reserved", "0");
        try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf).numDataNodes(1).build()) {
            cluster.waitActive();
            FileSystem files = cluster.getFileSystem();
            System.out.println(cluster.getNameNodePort());
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                String[] words = line.split("\t");
                Path path = new Path("/" + words[1]);
                if (words[0].equals("put")) {
                    put(files, new File(words[2]), path);
                } else {
                    files.delete(path, true);
                }
                System.out.println("done");
            }
        }
        System.exit(0);
    }

    private static void put(FileSystem files, File local, Path path) throws Exception {
        if (local.isDirectory()) {
            files.mkdirs(path);
            for (File each : local.listFiles()) {
                put(files, each, new Path(path, each.getName()));
            }
        } else {
            // Up to four blocks of whole checksums.
            long block = Math.max(LEAST_BLOCK, (local.length() / 4 + 511) / 512 * 512);
            try (OutputStream out = files.create(path, true, 4096, (short) 1, block)) {
                Files.copy(local.toPath(), out);
            }
            files.setTimes(path, local.lastModified(), -1);
        }
    }
}
