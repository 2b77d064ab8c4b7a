"""Transactions across moves: each is of one cluster, and a move waits for its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaException, Producer, TopicPartition

from srm.client.cluster_producers import ClusterProducers, is_fatal
from srm.client.errors import must_abort, named_errors
from srm.kafka.rights import Needs, on_transactional_id


class Routes(Protocol):
    """What transactions ask of the producer they belong to."""

    def cluster_for_transaction(self, timeout_s: float, *, reserve: bool) -> str:
        """Wait for the end of a hold; return the one cluster of all topics."""

    def transaction_over(self) -> None:
        """Let the producer follow its routes again."""


class Transactions:
    """The transactions of one producer; one at a time, as in Kafka.

    The producer id is acquired again on every cluster the producer comes to. An open transaction
    keeps its cluster: what is held meanwhile is followed when it has been committed or aborted.
    """

    def __init__(
        self, producers: ClusterProducers, routes: Routes, transactional_id: str | None
    ) -> None:
        self._producers = producers
        self._routes = routes
        self._id = transactional_id
        self._initialised: set[int] = set()
        self._asked = False
        self._init_timeout = -1.0
        self._cluster: str | None = None

    def init(self, timeout: float) -> None:
        """Acquire the producer id: fence older instances and end their transactions.

        Raises:
            KafkaException: as in confluent-kafka.
            HeldError: a hold outlasted the producer's patience.
        """
        cluster = self._routes.cluster_for_transaction(timeout, reserve=False)
        self._asked, self._init_timeout = True, timeout
        self._init_on(cluster, timeout)

    def begin(self, patience_s: float) -> None:
        """Begin a transaction; waits in a hold.

        Raises:
            KafkaException: as in confluent-kafka.
            HeldError: the hold outlasted ``patience_s``; nothing was begun.
        """
        if self._cluster is not None:
            self._native.begin_transaction()  # raises what confluent-kafka raises
        while True:
            cluster = self._routes.cluster_for_transaction(patience_s, reserve=False)
            if self._asked:
                self._init_on(cluster, self._init_timeout)
            self._cluster = self._routes.cluster_for_transaction(patience_s, reserve=True)
            if self._cluster == cluster:
                break
            self._end()  # it has moved in between
        try:
            with self._naming("beginning a transaction"):
                self._native.begin_transaction()
        except BaseException:
            self._end()
            raise

    def send_offsets(
        self, positions: Sequence[TopicPartition], metadata: Any, timeout: float
    ) -> None:
        """Let offsets of a consumer be committed with the transaction.

        Raises:
            KafkaException: as in confluent-kafka; and one that requires an abort where the offsets
                are of another cluster or of an earlier stay: what they cover is read again.
        """
        native = getattr(metadata, "native", None)
        stale = native is not None and (
            metadata.cluster != self._cluster or not metadata.covers(positions)
        )
        if self._cluster is not None and stale:
            raise must_abort(
                f"offsets read on cluster {metadata.cluster} before a move cannot be committed in "
                f"a transaction on cluster {self._cluster}: abort it, they are read again"
            )
        with self._naming("sending offsets to the transaction"):
            self._native.send_offsets_to_transaction(
                positions, metadata if native is None else native, timeout
            )

    def commit(self, timeout: float) -> None:
        """Commit; a move that waits for it continues.

        Raises:
            KafkaException: as in confluent-kafka.
        """
        self._finish("committing the transaction", "commit_transaction", timeout)

    def abort(self, timeout: float) -> None:
        """Abort; a move that waits for it continues.

        Raises:
            KafkaException: as in confluent-kafka.
        """
        self._finish("aborting the transaction", "abort_transaction", timeout)

    @property
    def cluster(self) -> str | None:
        """Cluster of the open transaction, None where none is open."""
        return self._cluster

    @property
    def _native(self) -> Producer:
        cluster = self._cluster
        if cluster is None:
            cluster = self._routes.cluster_for_transaction(0.0, reserve=False)
        return self._producers.on(cluster)

    def _init_on(self, cluster: str, timeout: float) -> None:
        native = self._producers.on(cluster)
        if id(native) not in self._initialised:
            with self._naming(f"initialising transactions on cluster {cluster}"):
                native.init_transactions(timeout)
            self._initialised.add(id(native))

    def _finish(self, doing: str, call: str, timeout: float) -> None:
        try:
            with self._naming(doing):
                getattr(self._native, call)(timeout)
        except KafkaException as error:
            if is_fatal(error.args[0]):
                self._end()  # the broker aborts what is open: the application starts again
            raise
        self._end()

    def _end(self) -> None:
        self._cluster = None
        self._routes.transaction_over()

    def _naming(self, doing: str) -> Any:
        needs: Needs = on_transactional_id("Write", self._id) if self._id else {}
        where = f"{doing} on cluster {self._cluster}" if self._cluster else doing
        return named_errors(where, needs)
