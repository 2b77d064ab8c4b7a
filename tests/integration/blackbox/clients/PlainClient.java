import java.io.FileWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** A producer or a consumer of Kafka's own, with its defaults: PlainClient consume|produce name=value ... */
public class PlainClient {
    static final CountDownLatch STOP = new CountDownLatch(1);

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            options.put(pair[0], pair[1]);
        }
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            STOP.countDown();
            try {
                ended.await(30, TimeUnit.SECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        try (Lines lines = new Lines(options.get("record"), options.get("cluster"))) {
            if (arguments[0].equals("consume")) {
                consume(options, lines);
            } else {
                produce(options, lines);
            }
        } finally {
            ended.countDown();
        }
    }

    static void consume(Map<String, String> options, Lines lines) throws IOException {
        Properties settings = settings(options);
        settings.put("group.id", options.get("group"));
        settings.put("group.protocol", options.getOrDefault("protocol", "classic"));
        settings.put("auto.offset.reset", options.getOrDefault("reset", "latest"));
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(options.get("topics").split(",")), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    if (!partitions.isEmpty()) {
                        lines.write("joined", "", -1, -1, partitions.size() + " partitions");
                    }
                }
            });
            while (STOP.getCount() > 0) {
                for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
                    lines.write("processed", r.topic(), r.partition(), r.offset(), r.value());
                }
            }
        }
    }

    static void produce(Map<String, String> options, Lines lines) throws Exception {
        Properties settings = settings(options);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        double rate = Double.parseDouble(options.getOrDefault("rate", "50"));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 1; STOP.getCount() > 0; number++) {
                String id = options.get("prefix") + "-" + number;
                producer.send(new ProducerRecord<>(options.get("topic"), id, id), (at, error) -> {
                    if (error == null) {
                        lines.write("acked", at.topic(), at.partition(), at.offset(), id);
                    } else {
                        lines.write("failed", options.get("topic"), -1, -1, id);
                    }
                });
                STOP.await((long) (1_000_000 / rate), TimeUnit.MICROSECONDS);
            }
        }
    }

    static Properties settings(Map<String, String> options) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        return settings;
    }
}

/** What a client writes down; the format is in record.py. */
class Lines implements AutoCloseable {
    private final FileWriter file;
    private final String cluster;

    Lines(String path, String cluster) throws IOException {
        this.file = new FileWriter(path, StandardCharsets.UTF_8, true);
        this.cluster = cluster;
    }

    synchronized void write(String kind, String topic, int partition, long offset, String id) {
        try {
            file.write(System.currentTimeMillis() + "\t" + kind + "\t" + cluster + "\t" + topic + "\t"
                + partition + "\t" + offset + "\t" + id + "\n");
            file.flush();
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    @Override
    public synchronized void close() throws IOException {
        file.close();
    }
}
