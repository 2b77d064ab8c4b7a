import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.common.message.OffsetCommitRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Subtopology;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Topology;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.OffsetCommitRequest;
import org.apache.kafka.common.requests.OffsetCommitResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatResponse;

/**
 * A member of a streams group (KIP-1071), as Kafka Streams with group.protocol=streams is one.
 *
 * <p>Arguments: host, port, group, topic, offset. Commits the offset for partition 0, prints
 * "committed", and sends heartbeats until it is killed.
 */
public class StreamsMember {
  private static Socket socket;
  private static int correlation;

  public static void main(String[] args) throws Exception {
    socket = new Socket(args[0], Integer.parseInt(args[1]));
    String member = java.util.UUID.randomUUID().toString();
    int epoch = 0;
    boolean committed = false;
    while (true) {
      var beat = new StreamsGroupHeartbeatRequestData();
      beat.setGroupId(args[2]).setMemberId(member).setMemberEpoch(epoch);
      beat.setRebalanceTimeoutMs(30_000);
      if (epoch == 0) {
        var tasks = new Subtopology().setSubtopologyId("0").setSourceTopics(List.of(args[3]));
        beat.setProcessId("process").setClientTags(List.of());
        beat.setActiveTasks(List.of()).setStandbyTasks(List.of()).setWarmupTasks(List.of());
        beat.setTopology(new Topology().setEpoch(0).setSubtopologies(List.of(tasks)));
      }
      short version = ApiKeys.STREAMS_GROUP_HEARTBEAT.latestVersion();
      var request = new StreamsGroupHeartbeatRequest.Builder(beat).build(version);
      var answer = (StreamsGroupHeartbeatResponse) ask(ApiKeys.STREAMS_GROUP_HEARTBEAT, request);
      if (answer.data().errorCode() == 0) {
        epoch = answer.data().memberEpoch();
        if (!committed) {
          committed = commit(args, member, epoch);
        }
      }
      Thread.sleep(300); // between heartbeats, as the protocol wants it
    }
  }

  private static boolean commit(String[] args, String member, int epoch) throws Exception {
    var partition = new OffsetCommitRequestData.OffsetCommitRequestPartition();
    partition.setPartitionIndex(0).setCommittedOffset(Long.parseLong(args[4]));
    var topic = new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(args[3]);
    var data = new OffsetCommitRequestData().setGroupId(args[2]).setMemberId(member);
    data.setGenerationIdOrMemberEpoch(epoch);
    data.setTopics(List.of(topic.setPartitions(List.of(partition))));
    var request = OffsetCommitRequest.Builder.forTopicNames(data).build((short) 9);
    var answer = (OffsetCommitResponse) ask(ApiKeys.OFFSET_COMMIT, request);
    boolean done = answer.errorCounts().keySet().stream().allMatch(e -> e.code() == 0);
    System.out.println(done ? "committed" : answer.errorCounts());
    return done;
  }

  private static AbstractResponse ask(ApiKeys key, AbstractRequest request) throws Exception {
    var header = new RequestHeader(key, request.version(), "streams-app", correlation++);
    ByteBuffer encoded = request.serializeWithHeader(header);
    byte[] bytes = new byte[encoded.remaining()];
    encoded.get(bytes);
    var out = new DataOutputStream(socket.getOutputStream());
    out.writeInt(bytes.length);
    out.write(bytes);
    out.flush();
    var in = new DataInputStream(socket.getInputStream());
    byte[] answer = new byte[in.readInt()];
    in.readFully(answer);
    return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
  }
}
