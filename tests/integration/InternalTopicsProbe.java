import java.util.Map;
import org.apache.kafka.connect.mirror.DefaultReplicationPolicy;
import org.apache.kafka.connect.mirror.IdentityReplicationPolicy;
import org.apache.kafka.connect.mirror.MirrorClient;

/** The topics that MirrorMaker 2's own policies call internal, one a line; see the test for the arguments. */
public class InternalTopicsProbe {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("remote")) {
            try (MirrorClient client = new MirrorClient(Map.of("bootstrap.servers", args[1]))) {
                client.remoteTopics().forEach(System.out::println);
            }
            return;
        }
        DefaultReplicationPolicy policy =
            args[0].equals("identity") ? new IdentityReplicationPolicy() : new DefaultReplicationPolicy();
        policy.configure(Map.of("replication.policy.separator", args[1]));
        for (int i = 2; i < args.length; i++) {
            if (policy.isInternalTopic(args[i])) {
                System.out.println(args[i]);
            }
        }
    }
}
