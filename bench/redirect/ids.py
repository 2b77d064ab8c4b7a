"""Fate of a batch whose producer id belongs to another producer on the new cluster."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message, Producer

from bench.redirect.reading import values
from bench.redirect.site import DIRECT, FRONT, B, P, Site
from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition
from srm.kafka.cluster import KafkaCluster

_THEIRS = 6
_OURS = 3


def lose_a_batch(site: Site, topic: str = "ids") -> dict[str, object]:
    """Redirect a producer from P to B, where another producer has its id and has used its sequence.

    Returns:
        The answer for the record, and the cluster that holds the record.
    """
    site.create(topic)
    theirs, their_id = _producer(f"{B}:{DIRECT}", topic, B, "theirs", _THEIRS)
    ours, our_id = _producer(f"{FRONT}:{DIRECT}", topic, P, "ours", _OURS)
    # Each cluster counts its ids separately; the one with lower ids assigns more.
    while our_id < their_id:
        ours, our_id = _producer(f"{FRONT}:{DIRECT}", topic, P, "ours", _OURS)
    while their_id < our_id:
        theirs, their_id = _producer(f"{B}:{DIRECT}", topic, B, "theirs", _THEIRS)
    site.balance_to("B")
    said: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        said.append(f"refused: {error}" if error else f"acknowledged at offset {message.offset()}")

    ours.produce(topic, b"ours/led", partition=0, on_delivery=delivered)
    ours.flush(60)
    found = [
        alias
        for alias, address in (("P", P), ("B", B))
        if "ours/led" in values(f"{address}:{DIRECT}", topic)
    ]
    theirs.flush(10)
    site.balance_to("P")
    return {"producer id": our_id, "told": said, "on": found}


def _producer(
    servers: str, topic: str, address: str, name: str, count: int
) -> tuple[Producer, int]:
    """Write records, each a batch; return the producer and its id."""
    known = _ids(address, topic)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, f"{name}/{number}".encode(), partition=0)
        producer.flush(60)
    [fresh] = _ids(address, topic) - known
    return producer, fresh


def _ids(address: str, topic: str) -> set[int]:
    props = {"bootstrap.servers": f"{address}:{DIRECT}"}
    place = TopicPartition(topic, 0)
    with KafkaCluster(address, ClusterClients.alike(props)) as cluster:
        return {one.producer_id for one in cluster.active_producers([place]).get(place, ())}
