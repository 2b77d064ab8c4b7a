import java.io.FileReader;
import java.net.InetAddress;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.*;

/** FollowRoute GROUP TOPIC P=p.properties B=b.properties: a consumer that follows srm's routing
 *  records (docs/formats.md) with kafka-clients alone. The first cluster is home. */
public class FollowRoute {
  record Route(long generation, long phase, long beat, String cluster, long lease, List<String> homes,
      String left, boolean own) { // own: of the subject, not of all clients of a home
    static final Comparator<Route> RANK = Comparator.comparingLong(Route::generation)
        .thenComparingLong(Route::phase).thenComparingLong(Route::beat).thenComparing(Route::cluster)
        .thenComparing(one -> one.homes.isEmpty() ? Integer.MAX_VALUE : one.homes.size())
        .thenComparing(Route::own);
    Route(String json, boolean own) { // unknown fields are ignored, absent ones are 0
      this(number(json, "generation"),
          text(json, "state").equals("hold") ? 0 : text(json, "decided").equals("true") ? 2 : 1,
          number(json, "beat"), text(json, "cluster"), number(json, "lease_ms"), list(json, "homes"),
          text(json, "left"), own);
    }
    String source() { return phase == 2 ? left : cluster; }
    static List<String> list(String json, String name) {
      var found = Pattern.compile("\"" + name + "\"\\s*:\\s*\\[([^\\]]*)").matcher(json);
      return !found.find() || found.group(1).isBlank() ? List.of()
          : List.of(found.group(1).replaceAll("[\"\\s]", "").split(","));
    }
    static String text(String json, String name) { // the values needed here have no escapes
      var found = Pattern.compile("\"" + name + "\"\\s*:\\s*\"?([^\",}]*)").matcher(json);
      return found.find() ? found.group(1).strip() : "0";
    }
    static long number(String json, String name) { return Long.parseLong(text(json, name)); }
  }
  static final TopicPartition ROUTING = new TopicPartition("__srm-routing", 0);
  final Map<String, Properties> clusters = new LinkedHashMap<>();
  final Map<String, KafkaConsumer<String, String>> tails = new HashMap<>();
  final Map<String, KafkaProducer<String, String>> tellers = new HashMap<>();
  final String subject, client = "FollowRoute-" + UUID.randomUUID();
  final String home, host = InetAddress.getLocalHost().getHostName();
  final Map<String, Long> starts = new TreeMap<>(); // first offsets on this cluster, by partition
  final NavigableSet<Route> routes = new TreeSet<>(Route.RANK); // all ever read on any cluster
  Route route, lapsed;        // the route in force; the hold that has lapsed
  String said = "";           // what was last acknowledged
  long seen, since, told;     // times: route read, state reached, last acknowledgement

  FollowRoute(String[] args) throws Exception {
    subject = "group:" + args[0];
    for (String arg : List.of(args).subList(2, args.length)) {
      var file = new Properties();
      file.load(new FileReader(arg.split("=", 2)[1]));
      clusters.put(arg.split("=", 2)[0], file);
      var tail = reader(file, "isolation.level", "read_committed");
      tail.assign(List.of(ROUTING));
      tail.seekToBeginning(List.of(ROUTING));
      tails.put(arg.split("=", 2)[0], tail);
    }
    home = clusters.keySet().iterator().next();
    route = inForce();
    for (String alias : tails.keySet()) readToEnd(alias, 10_000); // an unavailable one is read later
  }
  static Properties with(Properties settings, String... more) {
    var all = new Properties();
    all.putAll(settings);
    for (int i = 0; i < more.length; i += 2) all.put(more[i], more[i + 1]);
    return all;
  }
  static KafkaConsumer<String, String> reader(Properties settings, String... more) {
    return new KafkaConsumer<>(with(settings, more), new StringDeserializer(), new StringDeserializer());
  }
  void read(String alias, int ms) {
    for (var record : tails.get(alias).poll(Duration.ofMillis(ms))) {
      if (record.value() == null) continue;
      boolean own = record.key().equals(subject);
      if (!own && !record.key().startsWith("home:")) continue;
      for (String each : record.value().split("\"others\"")) // the last field: routes of their own
        if (each.contains("generation")) routes.add(new Route(each, own));
    }
    Route read = inForce();
    if (Route.RANK.compare(read, route) != 0) {
      route = read;
      seen = System.nanoTime();
    }
  }
  Route inForce() { // the highest that leads clients of this home, or of a cluster it was led to
    Route led = new Route(0, 1, 0, home, 0, List.of(), "", false); // no record: home, go
    for (Route each : routes) {
      boolean came = each.source().equals(led.cluster), atHome = each.homes.contains(home);
      if (each.own ? came || atHome || each.homes.isEmpty()
          : led.own ? came && !each.cluster.equals(led.cluster) : came || atHome) led = each;
    }
    return led;
  }
  boolean readToEnd(String alias, long ms) {
    long until = System.nanoTime() + ms * 1_000_000;
    try {
      var limit = Duration.ofMillis(ms);
      long end = tails.get(alias).endOffsets(List.of(ROUTING), limit).get(ROUTING);
      while (tails.get(alias).position(ROUTING, limit) < end && System.nanoTime() < until) read(alias, 100);
      return System.nanoTime() < until;
    } catch (TimeoutException away) { return false; }
  }
  boolean held() { // a hold that is not renewed has lapsed, once its cluster was read to the end again
    Route hold = route;
    if (hold.phase == 0 && hold.lease > 0 && System.nanoTime() - seen > hold.lease * 1_000_000)
      if (readToEnd(hold.cluster, 5_000) && route == hold) lapsed = hold;
    return route.phase == 0 && route != lapsed;
  }
  void say(String state) { // changes at once, repeats every 30 s; null withdraws it
    String news = state + route.generation;
    if (!news.equals(said)) since = System.nanoTime();
    else if (System.nanoTime() - told < 30_000_000_000L) return;
    said = news;
    told = System.nanoTime();
    long done = (told - since) / 1_000_000;
    String value = state == null ? null : String.format(
        "{'subject':'%s','client':'%s','generation':%d,'state':'%s','cluster':'%s','time_ms':%d,"
            + "'positions':{%s},'host':'%s','ages_ms':{'%s':%d},'home':'%s'}",
        subject, client, route.generation, state, route.cluster, System.currentTimeMillis() - done,
        String.join(",", starts.entrySet().stream().map(at -> "'" + at.getKey() + "':" + at.getValue()).toList()),
        host, state, done, home).replace('\'', '"');
    for (String alias : clusters.keySet()) // on all clusters: one may be lost
      tellers.computeIfAbsent(alias, name -> new KafkaProducer<>(with(clusters.get(name), "max.block.ms", "2000"),
          new StringSerializer(), new StringSerializer()))
          .send(new ProducerRecord<>("__srm-clients", subject + ":" + client, value));
  }
  @SuppressWarnings("deprecation") // clients before 4.1 only have close(Duration)
  void run(String group, String topic, CountDownLatch stop) {
    KafkaConsumer<String, String> consumer = null;
    for (String on = ""; stop.getCount() > 0; ) {
      for (String alias : tails.keySet()) read(alias, 20);
      boolean held = held();
      if (consumer != null && (held || !route.cluster.equals(on))) {
        consumer.close(Duration.ofSeconds(5)); // commits what is processed, and leaves the group
        consumer = null;
      }
      if (held) say("held");
      else if (consumer == null) {
        on = route.cluster;
        var names = new ArrayList<>(List.of(topic));
        for (String other : clusters.keySet()) if (!other.equals(on)) names.add(other + "." + topic);
        consumer = reader(clusters.get(on), "group.id", group, "client.id", client, "auto.offset.reset", "earliest");
        consumer.subscribe(names);
        starts.clear();
      } else {
        var records = consumer.poll(Duration.ofMillis(100));
        for (var record : records) {
          starts.putIfAbsent(record.topic() + "-" + record.partition(), record.offset());
          System.out.println(on + " " + record.value());
        }
        for (var part : consumer.assignment()) starts.putIfAbsent(part.toString(), consumer.position(part));
        if (!said.equals("processed" + route.generation) && !consumer.assignment().isEmpty()) say("resumed");
        if (!records.isEmpty() || said.startsWith("processed")) say("processed");
      }
    }
    if (consumer != null) consumer.close();
    say(null);
    tellers.values().forEach(teller -> teller.close(Duration.ofSeconds(5)));
  }
  public static void main(String[] args) throws Exception {
    var stop = new CountDownLatch(1);
    var main = Thread.currentThread();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      stop.countDown();
      try { main.join(30_000); } catch (InterruptedException e) { return; }
    }));
    new FollowRoute(args).run(args[0], args[1], stop);
  }
}
