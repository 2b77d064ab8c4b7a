"""Two replicated clusters, clients that know nothing of srm on them, and an operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.blackbox.audit import (
    Event,
    GroupCount,
    count_group,
    from_first_processed,
    not_copied,
    read_ids,
)
from tests.integration.blackbox.operating import Move, Operator
from tests.integration.blackbox.programs import Client, java, python
from tests.integration.moving import PARTITIONS, Site
from tests.waiting import eventually

from srm.engine.cluster_ports import TopicSpec
from srm_lab.stack.kafka import KafkaBroker

BLOCKED, INTERRUPTED = 4, 130
"""Exit codes of a move: something is in the way of its start, or Ctrl-C ended its wait."""


class Stage:
    """One topic on both clusters, its clients, and the moves between them."""

    def __init__(self, clusters: Mapping[str, KafkaBroker], home: Path, class_path: str) -> None:
        self.site = Site(clusters, home)
        self.home = home
        self._class_path = class_path
        self.p, self.b, self.topic = self.site.p, self.site.b, self.site.topic
        self.bootstrap = {self.p: clusters["P"].bootstrap, self.b: clusters["B"].bootstrap}
        self.results, self.streamed = f"Results{self.site.unique}", f"Streamed{self.site.unique}"
        for cluster in self.site.clusters.values():
            outputs = (self.results, self.streamed)
            cluster.create_topics([TopicSpec(name, 1, 1, {}) for name in outputs])
        self.operator = Operator(self.site.path, home)
        self.is_rebuilt = False
        """Whether a cluster has lost what earlier moves had written there."""
        self.writers: list[Client] = []
        self.readers: list[Client] = []

    def close(self) -> None:
        """Kill the clients, and replay what moves have written against docs/spec."""
        for client in (*self.writers, *self.readers):
            client.kill()
        try:
            assert self.is_rebuilt or self.site.violations(self.home) == []
        finally:
            for cluster in self.site.clusters.values():
                cluster.close()

    # What reads and writes.

    def topics(self, alias: str) -> list[str]:
        """What an application subscribes to on a cluster: its topic, and the other's copy."""
        other = self.b if alias == self.p else self.p
        return [self.topic, f"{other}.{self.topic}"]

    def writer(self, name: str, **options: object) -> Client:
        """A producer in Python; options are those of ``clients/produce.py``."""
        return self._writer(
            name,
            lambda start: python(
                "produce.py",
                bootstrap=start.bootstrap,
                cluster=start.alias,
                topic=self.topic,
                record=start.record,
                prefix=f"{name}{start.number}",
                **options,
            ),
        )

    def java_writer(self, name: str, **options: object) -> Client:
        """A producer in Java, with Kafka's default batches."""
        return self._writer(
            name,
            lambda start: java(
                self._class_path,
                "PlainClient",
                "produce",
                bootstrap=start.bootstrap,
                cluster=start.alias,
                topic=self.topic,
                record=start.record,
                prefix=f"{name}{start.number}",
                **options,
            ),
        )

    def reader(self, name: str, **options: object) -> Client:
        """A consumer in Python; options are those of ``clients/consume.py``."""
        group = self.site.group(name)
        return self._reader(
            name,
            lambda start: python(
                "consume.py",
                bootstrap=start.bootstrap,
                cluster=start.alias,
                topic=self.topics(start.alias),
                group=group,
                record=start.record,
                **options,
            ),
        )

    def java_reader(self, name: str, **options: object) -> Client:
        """A consumer in Java."""
        return self._java_reader(name, ("PlainClient", "consume"), options)

    def streams(self, name: str, **options: object) -> Client:
        """A Kafka Streams application."""
        state, output = self.home / name, self.streamed
        return self._java_reader(
            name, ("StreamsClient",), {"state": state, "output": output, **options}
        )

    def processor(self, name: str, **options: object) -> Client:
        """An application that reads and writes in one transaction."""
        group = self.site.group(name)
        return self._reader(
            name,
            lambda start: python(
                "process.py",
                bootstrap=start.bootstrap,
                cluster=start.alias,
                topic=self.topics(start.alias),
                output=self.results,
                group=group,
                record=start.record,
                **options,
            ),
        )

    def _java_reader(
        self, name: str, program: tuple[str, ...], options: Mapping[str, object]
    ) -> Client:
        group = self.site.group(name)
        return self._reader(
            name,
            lambda start: java(
                self._class_path,
                *program,
                bootstrap=start.bootstrap,
                cluster=start.alias,
                topics=",".join(self.topics(start.alias)),
                group=group,
                record=start.record,
                **options,
            ),
        )

    def _writer(self, name: str, command: Any) -> Client:
        self.writers.append(Client(name, self.home, command))
        return self.writers[-1]

    def _reader(self, name: str, command: Any) -> Client:
        self.readers.append(Client(name, self.home, command, self.site.group(name)))
        return self.readers[-1]

    # What the operator does.

    def start(self, alias: str, *clients: Client) -> None:
        """Start clients on a cluster, readers and writers by default; wait for the readers."""
        chosen = clients or (*self.readers, *self.writers)
        for client in chosen:
            client.start(alias, self.bootstrap[alias])
        for client in chosen:
            if client.group:
                eventually(lambda c=client: c.count("joined"), f"{client.name} works on {alias}")

    def stop(self, *clients: Client) -> None:
        """Stop clients in order, all at the same time; all of them by default."""
        chosen = clients or (*self.writers, *self.readers)
        for client in chosen:
            client.request_stop()
        for client in chosen:
            client.stop()

    def run(self, name: str, source: str, *choices: str, groups: Iterable[str] = ()) -> Move:
        """Start a move of all readers' groups away from a cluster."""
        target = self.b if source == self.p else self.p
        named = tuple(groups) or tuple(reader.group for reader in self.readers)
        move_id = f"{name}-{self.site.unique}"
        return self.operator.run(move_id, source, target, self.topic, named, *choices)

    def in_the_way(self, source: str) -> list[str]:
        """Return what a plan of all readers' groups waits for: reasons, and first commits."""
        target = self.b if source == self.p else self.p
        groups = [reader.group for reader in self.readers]
        plan = self.operator.plan(source, target, self.topic, groups)
        pending = [line for line in plan["warnings"] if "has committed nothing: " in line]
        return [*plan["blocking"], *pending]

    def await_clear(self, source: str) -> None:
        """Wait until a move of all readers' groups may start."""
        last: list[str] = []

        def clear() -> bool:
            last[:] = self.in_the_way(source)
            return not last

        try:
            eventually(clear, "nothing is in the way")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {last}") from None

    def await_known(self, source: str) -> None:
        """Wait until a move would find in the map whatever groups have read.

        A replicator that just started knows little; an operator looks at the plan first.
        """
        eventually(
            lambda: not any("was never copied" in reason for reason in self.in_the_way(source)),
            "what the groups have read is copied",
        )

    def move(self, name: str, source: str, *choices: str) -> Any:
        """Carry out a whole move of all clients, as docs/clients.md says; return its report.

        Like an operator it looks at the plan first: a replicator that just started knows little.
        """
        target = self.b if source == self.p else self.p
        self.await_clear(source)
        with self.run(name, source, *choices) as move:
            move.await_held()
            self.stop()
            move.await_gone()
            self.start(target)
            return move.report()

    def end_refused(self, move: Move) -> None:
        """Wait for the end of a move that cannot start: it holds nothing."""
        code, said = move.ended()
        assert code == BLOCKED, f"{move.move_id} ended with {code}: {said}"
        assert self.operator.step(move.move_id) in {"released", "planned", None}

    def end_held(self, move: Move) -> None:
        """Interrupt a move that waits for its gate: it has to release everything."""
        code, said = move.interrupted()
        assert code == INTERRUPTED, f"{move.move_id} ended with {code}: {said}"
        assert self.operator.step(move.move_id) == "released"

    def trim(self, alias: str, topic: str) -> None:
        """Drop the first half of each partition, as retention would."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap[alias], "group.id": "trim"})
        admin = AdminClient({"bootstrap.servers": self.bootstrap[alias]})
        places = [KafkaTopicPartition(topic, number) for number in range(PARTITIONS)]
        for place in places:
            place.offset = consumer.get_watermark_offsets(place, timeout=60)[1] // 2
        consumer.close()
        for deleted in admin.delete_records(places).values():
            deleted.result(60)

    # What is true.

    @property
    def acked(self) -> list[Event]:
        """All records that a broker has acknowledged, on either cluster."""
        return [e for writer in self.writers for e in writer.events if e.kind == "acked"]

    @property
    def undone(self) -> set[str]:
        """Ids of records in aborted transactions."""
        return {e.id for writer in self.writers for e in writer.events if e.kind == "aborted"}

    def count(self, reader: Client, *, latest_on: str | None = None) -> GroupCount:
        """Count what a group made of everything that was acknowledged."""
        acked, processed = self.acked, reader.events
        if latest_on is not None:
            acked = from_first_processed(acked, processed, latest_on)
        return count_group(acked, self.undone, processed)

    def await_read(self, reader: Client, *, latest_on: str | None = None) -> None:
        """Wait until a group has processed everything; the caller has stopped the writers."""

        def read() -> bool:
            reader.alive()
            return not self.count(reader, latest_on=latest_on).lost

        try:
            eventually(read, f"{reader.name} has read everything")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.count(reader, latest_on=latest_on)}") from None

    def await_copied(self, source: str) -> None:
        """Wait until all that was written on a cluster is in its copy, once."""
        written = [event for event in self.acked if event.cluster == source]
        eventually(
            lambda: not not_copied(written, self.copy(source)), f"{source}'s records are copied"
        )

    def copy(self, source: str) -> Any:
        """Ids in the copy of a cluster's topic, with how often they are there."""
        target = self.b if source == self.p else self.p
        return read_ids(self.bootstrap[target], f"{source}.{self.topic}")

    def committed(self, alias: str, group: str) -> dict[str, int]:
        """Offsets a group has on a cluster, by topic-partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap[alias], "group.id": group})
        try:
            asked = [
                KafkaTopicPartition(topic, number)
                for topic in self.topics(alias)
                for number in range(PARTITIONS)
            ]
            found = consumer.committed(asked, timeout=60)
            return {f"{tp.topic}-{tp.partition}": tp.offset for tp in found if tp.offset >= 0}
        finally:
            consumer.close()
