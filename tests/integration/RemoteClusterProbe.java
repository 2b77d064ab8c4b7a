import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** What Kafka's own client for mirrored clusters sees: one fact a line. */
public class RemoteClusterProbe {
    public static void main(String[] args) throws Exception {
        Map<String, Object> props = new HashMap<>();
        props.put("bootstrap.servers", args[0]);
        String source = args[1];
        for (int i = 3; i < args.length; i += 2) {
            props.put(args[i], args[i + 1]);
        }
        try (MirrorClient client = new MirrorClient(props)) {
            System.out.println("hops " + client.replicationHops(source));
            System.out.println("upstream " + client.upstreamClusters().contains(source));
            for (String topic : client.remoteTopics(source)) {
                System.out.println("remote " + topic);
            }
        }
        Map<TopicPartition, OffsetAndMetadata> offsets =
            RemoteClusterUtils.translateOffsets(props, source, args[2], Duration.ofSeconds(20));
        offsets.forEach((tp, offset) -> System.out.println("offset " + tp + " " + offset.offset()));
    }
}
