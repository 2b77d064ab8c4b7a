import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.UUID;
import org.apache.kafka.common.message.OffsetCommitRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.OffsetCommitRequest;
import org.apache.kafka.common.requests.OffsetCommitResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatResponse;

/**
 * A member of a Kafka Streams group (KIP-1071) without Kafka Streams: it joins, commits offset 10 of
 * partition 0 and heartbeats until something comes in on its standard input; then it leaves.
 */
public class StreamsMember {
  private final Socket socket;
  private int correlationId;

  private StreamsMember(Socket socket) {
    this.socket = socket;
  }

  /** Arguments: host, port, group, topic. */
  public static void main(String[] args) throws Exception {
    try (Socket socket = new Socket(args[0], Integer.parseInt(args[1]))) {
      new StreamsMember(socket).run(args[2], args[3]);
    }
  }

  private void run(String group, String topic) throws Exception {
    String member = UUID.randomUUID().toString();
    int epoch = 0;
    boolean committed = false;
    while (System.in.available() == 0) {
      var beat = new StreamsGroupHeartbeatRequestData()
          .setGroupId(group).setMemberId(member).setMemberEpoch(epoch).setRebalanceTimeoutMs(30_000);
      if (epoch == 0) {
        join(beat, topic);
      }
      var answer = (StreamsGroupHeartbeatResponse)
          ask(ApiKeys.STREAMS_GROUP_HEARTBEAT, new StreamsGroupHeartbeatRequest.Builder(beat));
      if (answer.data().errorCode() == Errors.NONE.code()) {
        epoch = answer.data().memberEpoch();
        committed = committed || commit(group, topic, member, epoch);
      } else if (epoch != 0) {
        throw Errors.forCode(answer.data().errorCode()).exception(answer.data().errorMessage());
      }
      Thread.sleep(200);
    }
    var leave = new StreamsGroupHeartbeatRequestData()
        .setGroupId(group).setMemberId(member).setMemberEpoch(-1);
    ask(ApiKeys.STREAMS_GROUP_HEARTBEAT, new StreamsGroupHeartbeatRequest.Builder(leave));
  }

  private static void join(StreamsGroupHeartbeatRequestData beat, String topic) {
    var part = new StreamsGroupHeartbeatRequestData.Subtopology()
        .setSubtopologyId("0").setSourceTopics(List.of(topic));
    beat.setProcessId("process").setClientTags(List.of()).setActiveTasks(List.of())
        .setStandbyTasks(List.of()).setWarmupTasks(List.of())
        .setTopology(new StreamsGroupHeartbeatRequestData.Topology()
            .setEpoch(0).setSubtopologies(List.of(part)));
  }

  private boolean commit(String group, String topic, String member, int epoch) throws Exception {
    var partition = new OffsetCommitRequestData.OffsetCommitRequestPartition()
        .setPartitionIndex(0).setCommittedOffset(10).setCommittedMetadata("");
    var data = new OffsetCommitRequestData()
        .setGroupId(group).setMemberId(member).setGenerationIdOrMemberEpoch(epoch)
        .setTopics(List.of(new OffsetCommitRequestData.OffsetCommitRequestTopic()
            .setName(topic).setPartitions(List.of(partition))));
    var answer = (OffsetCommitResponse)
        ask(ApiKeys.OFFSET_COMMIT, OffsetCommitRequest.Builder.forTopicNames(data));
    boolean done = answer.errorCounts().keySet().equals(java.util.Set.of(Errors.NONE));
    if (done) {
      System.out.println("committed");
    }
    return done;
  }

  private AbstractResponse ask(ApiKeys key, AbstractRequest.Builder<?> builder) throws Exception {
    short version = key == ApiKeys.OFFSET_COMMIT ? (short) 9 : key.latestVersion();
    var header = new RequestHeader(key, version, "streams-app", correlationId++);
    ByteBuffer bytes = builder.build(version).serializeWithHeader(header);
    byte[] sent = new byte[bytes.remaining()];
    bytes.get(sent);
    var out = new DataOutputStream(socket.getOutputStream());
    out.writeInt(sent.length);
    out.write(sent);
    out.flush();
    var in = new DataInputStream(socket.getInputStream());
    byte[] received = new byte[in.readInt()];
    in.readFully(received);
    return AbstractResponse.parseResponse(ByteBuffer.wrap(received), header);
  }
}
