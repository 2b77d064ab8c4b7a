import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A producer and a consumer for each argument NAME[,KEY=VALUE...]; they print what they did. */
public class Probe {
    public static void main(String[] args) {
        for (int i = 2; i < args.length; i++) {
            String[] parts = args[i].split(",");
            Properties props = new Properties();
            props.put("bootstrap.servers", args[0]);
            props.put("client.id", parts[0]);
            props.put("group.id", parts[0]);
            props.put("auto.offset.reset", "earliest");
            String codec = "org.apache.kafka.common.serialization.String";
            props.put("key.serializer", codec + "Serializer");
            props.put("value.serializer", codec + "Serializer");
            props.put("key.deserializer", codec + "Deserializer");
            props.put("value.deserializer", codec + "Deserializer");
            for (int j = 1; j < parts.length; j++) {
                String[] pair = parts[j].split("=", 2);
                props.put(pair[0], pair[1]);
            }
            String name = parts[0];
            new Thread(() -> produce(name, args[1], props)).start();
            new Thread(() -> consume(name, args[1], props)).start();
        }
    }

    private static void produce(String name, String topic, Properties props) {
        KafkaProducer<String, String> producer = new KafkaProducer<>(props);
        for (long n = 0; ; n++) {
            String value = name + "/" + n;
            producer.send(new ProducerRecord<>(topic, 0, name, value), (metadata, error) ->
                say("%s %s", error == null ? "ack" : "refused", value));
            pause();
        }
    }

    private static void consume(String name, String topic, Properties props) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(props);
        consumer.subscribe(List.of(topic));
        while (true) {
            for (var record : consumer.poll(Duration.ofMillis(200))) {
                if (record.value().startsWith("B/")) {
                    say("read %s %s", name, record.value());
                }
            }
        }
    }

    private static synchronized void say(String text, Object... values) {
        System.out.println(String.format(text, values));
    }

    private static void pause() {
        try {
            Thread.sleep(200);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
