import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** A Streams application without state: it writes down each record, and passes it to its output. */
public class StreamsClient {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            options.put(pair[0], pair[1]);
        }
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("group"));
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, options.getOrDefault("protocol", "classic"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, options.get("state"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, options.getOrDefault("guarantee", "at_least_once"));
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        Lines lines = new Lines(options.get("record"), options.get("cluster"));
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(List.of(options.get("topics").split(",")), Consumed.with(Serdes.String(), Serdes.String()))
            .processValues(() -> new ContextualFixedKeyProcessor<String, String, String>() {
                @Override
                public void process(FixedKeyRecord<String, String> r) {
                    RecordMetadata at = context().recordMetadata().orElseThrow();
                    lines.write("processed", at.topic(), at.partition(), at.offset(), r.value());
                    context().forward(r);
                }
            })
            .to(options.get("output"), Produced.with(Serdes.String(), Serdes.String()));
        CountDownLatch ended = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                lines.write("joined", "", -1, -1, "running");
            } else if (now == KafkaStreams.State.ERROR) {
                ended.countDown();
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            // Closed without options it stays a member of a classic group until its session ends.
            streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
                .withTimeout(Duration.ofSeconds(30)));
            ended.countDown();
        }));
        streams.start();
        ended.await();
    }
}
