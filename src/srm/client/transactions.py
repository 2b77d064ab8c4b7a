"""Transactions across moves: each is on one cluster, and a move waits for its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, Producer, TopicPartition

from srm.client.background_calls import Aside
from srm.client.cluster_producers import ClusterProducers, is_fatal
from srm.client.errors import must_abort, named_errors
from srm.client.topic_follower import TopicFollower
from srm.errors import GivenUpError
from srm.kafka.wire.errors import Needs, on_transactional_id

_LATE_ABORT_S: Final = 30.0


class _Native:
    """One producer of confluent-kafka, its initialisation and its background calls."""

    def __init__(self, producer: Producer, producers: ClusterProducers) -> None:
        self.producer = producer
        self.is_initialised = False
        self.aside = Aside("srm-transactions", lambda: not producers.is_current(producer))

    def abandon(self) -> None:
        """Abort the open transaction if its cluster still answers: readers wait for its end."""
        producer = self.producer
        self.aside.leave(lambda: producer.abort_transaction(_LATE_ABORT_S))


class Transactions:
    """The transactions of one producer; one at a time, as in Kafka.

    The producer acquires a producer id on every cluster it moves to. An open transaction keeps its
    cluster: a hold is followed after its commit or abort. Only if that cluster is abandoned, the
    transaction ends at once. The next call then raises, without a request to that cluster.
    """

    def __init__(
        self, producers: ClusterProducers, routes: TopicFollower, transactional_id: str | None
    ) -> None:
        self._producers = producers
        self._routes = routes
        self._id = transactional_id
        self._natives: dict[str, _Native] = {}
        self._asked = False
        self._init_timeout = -1.0
        self._cluster: str | None = None
        self._open: _Native | None = None

    def init(self, timeout: float) -> None:
        """Acquire the producer id, fence older instances and end their transactions.

        HeldError: a hold outlasted the producer's timeout.
        """
        while True:
            cluster = self._routes.cluster_for_transaction(timeout, reserve=False)
            self._asked, self._init_timeout = True, timeout
            if self._init_on(cluster):
                return

    def begin(self, patience_s: float) -> None:
        """Begin a transaction; wait in a hold.

        HeldError: the hold outlasted ``patience_s``; nothing was begun.
        """
        self.require_alive()
        if self._open is not None:
            self._open.producer.begin_transaction()  # raises what confluent-kafka raises
        while True:
            cluster = self._routes.cluster_for_transaction(patience_s, reserve=False)
            if self._asked and not self._init_on(cluster):
                continue
            native = self._native_on(cluster)
            self._cluster = self._routes.cluster_for_transaction(patience_s, reserve=True)
            if self._cluster == cluster and self._producers.is_current(native.producer):
                break
            self._end()  # it has moved since
        self._open = native
        try:
            with self._naming("beginning a transaction"):
                native.producer.begin_transaction()
        except BaseException:
            self._end()
            raise

    def send_offsets(
        self, positions: Sequence[TopicPartition], metadata: Any, timeout: float
    ) -> None:
        """Commit offsets of a consumer with the transaction.

        KafkaException, requiring an abort: the cluster is abandoned, or the offsets are of
        another cluster or an earlier stay. Their records are read again.
        """
        native = getattr(metadata, "native", None)
        stale = native is not None and (
            metadata.cluster != self._cluster or not metadata.covers(positions)
        )
        if self._cluster is not None and stale:
            raise must_abort(
                f"offsets read on cluster {metadata.cluster} before a move cannot be committed in "
                f"a transaction on cluster {self._cluster}: abort it; the records are read again"
            )
        theirs = metadata if native is None else native
        try:
            self._call(
                "sending offsets to the transaction",
                lambda producer: producer.send_offsets_to_transaction(positions, theirs, timeout),
            )
        except GivenUpError as error:
            raise self._over() from error

    def commit(self, timeout: float) -> None:
        """Commit; a move that waits for it continues.

        KafkaException, requiring an abort: the cluster is abandoned. Its text states if the
        result of the commit is unknown.
        """
        self.require_alive()
        doing = "committing the transaction"
        try:
            self._finish(doing, lambda producer: producer.commit_transaction(timeout))
        except GivenUpError as error:
            raise must_abort(
                f"{doing} on cluster {self._cluster}: a move abandoned the cluster, whether the "
                "transaction was committed there is unknown; abort it here and continue"
            ) from error

    def abort(self, timeout: float) -> None:
        """Abort; a move that waits for it continues."""
        try:
            self._finish(
                "aborting the transaction", lambda producer: producer.abort_transaction(timeout)
            )
        except GivenUpError:
            self._abandon()

    def require_alive(self) -> None:
        """Refuse a transaction on an abandoned cluster: it has to be aborted, without a request."""
        if self._is_lost:
            raise self._over()

    @property
    def cluster(self) -> str | None:
        """Cluster of the open transaction, None if none is open."""
        return self._cluster

    @property
    def _is_lost(self) -> bool:
        """True if the cluster of the open transaction is abandoned."""
        return self._open is not None and not self._producers.is_current(self._open.producer)

    def _over(self) -> KafkaException:
        return must_abort(
            f"a move abandoned cluster {self._cluster}, where the transaction is open: nothing of "
            "it was committed; abort it and continue"
        )

    def _native_on(self, cluster: str) -> _Native:
        """Return the producer of a cluster, a new one only after the cluster was abandoned."""
        producer, native = self._producers.on(cluster), self._natives.get(cluster)
        if native is None or native.producer is not producer:
            native = self._natives[cluster] = _Native(producer, self._producers)
        return native

    def _init_on(self, cluster: str) -> bool:
        """Acquire the producer id once; return False if the cluster is abandoned."""
        native = self._native_on(cluster)
        if native.is_initialised:
            return True
        with self._naming(f"initialising transactions on cluster {cluster}"):
            try:
                native.aside.call(lambda: native.producer.init_transactions(self._init_timeout))
            except GivenUpError:
                return False
        native.is_initialised = True
        return True

    def _call(self, doing: str, call: Callable[[Producer], object]) -> None:
        if self._is_lost:
            raise GivenUpError(f"{doing}: cluster {self._cluster} is abandoned")
        native = self._open
        if native is None:
            cluster = self._routes.cluster_for_transaction(0.0, reserve=False)
            native = self._native_on(cluster)
        with self._naming(doing):
            try:
                native.aside.call(lambda: call(native.producer))
            except KafkaException as error:
                if self._is_lost:  # abandoning the cluster dropped its records
                    raise GivenUpError(f"{doing}: {error}") from error
                raise

    def _finish(self, doing: str, call: Callable[[Producer], object]) -> None:
        try:
            self._call(doing, call)
        except KafkaException as error:
            if is_fatal(error.args[0]):
                self._end()  # the broker aborts the open one; the application starts again
            raise
        self._end()

    def _abandon(self) -> None:
        if self._open is not None:
            self._open.abandon()
        self._end()

    def _end(self) -> None:
        self._cluster = self._open = None
        self._routes.transaction_over()

    def _naming(self, doing: str) -> Any:
        needs: Needs = on_transactional_id("Write", self._id) if self._id else {}
        where = f"{doing} on cluster {self._cluster}" if self._cluster else doing
        return named_errors(where, needs)
