package logdex.wire;

import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A real name server and a real broker over a store directory, until standard input ends.
 *
 * <p>The broker starts as a slave and is a master from then on. So no timer of a master writes to the store. With a {@code role} it has
 * that role from the beginning; a slave asks the name server at {@code namesrvAddr}.
 */
public final class Servers {
    private Servers() {}

    /**
     * Starts both.
     *
     * @param arguments {@code name=value}: {@code namesrv} and {@code port} are ports, {@code dir} is the store, {@code role} is optional;
     *     others are properties of broker, store and server
     */
    public static void main(String[] arguments) throws Exception {
        System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION));
        var properties = new Properties();
        for (String argument : arguments) {
            properties.setProperty(argument.substring(0, argument.indexOf('=')), argument.substring(argument.indexOf('=') + 1));
        }
        int port = Integer.parseInt(properties.getProperty("port"));
        var nameServer = new NettyServerConfig();
        nameServer.setListenPort(Integer.parseInt(properties.getProperty("namesrv")));
        var names = new NamesrvController(new NamesrvConfig(), nameServer);
        names.initialize();
        names.start();

        var broker = new BrokerConfig();
        broker.setBrokerIP1("127.0.0.1");
        broker.setBrokerIP2("127.0.0.1");
        broker.setBrokerName("broker-a");
        broker.setNamesrvAddr("127.0.0.1:" + nameServer.getListenPort());
        var store = new MessageStoreConfig();
        store.setStorePathRootDir(properties.getProperty("dir"));
        store.setStorePathCommitLog(properties.getProperty("dir") + "/commitlog");
        store.setHaListenPort(port + 1);
        String role = (String) properties.remove("role");
        store.setBrokerRole(role == null ? BrokerRole.SLAVE : BrokerRole.valueOf(role));
        properties.remove("namesrv");
        properties.remove("port");
        MixAll.properties2Object(properties, broker);
        MixAll.properties2Object(properties, store);
        var server = new NettyServerConfig();
        server.setListenPort(port);
        var controller = new BrokerController(broker, server, new NettyClientConfig(), store);
        if (!controller.initialize()) {
            throw new IllegalStateException("the broker does not start");
        }
        controller.start();
        if (role == null) {
            store.setBrokerRole(BrokerRole.ASYNC_MASTER);
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
            Thread.onSpinWait();
        }
        Runtime.getRuntime().halt(0);
    }
}
