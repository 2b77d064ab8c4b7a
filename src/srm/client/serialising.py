"""Serialisers and deserialisers as in confluent-kafka's SerializingProducer and its counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import DeserializingConsumer
from confluent_kafka._serde_builder import build_serdes, close_serdes, pop_serde_props
from confluent_kafka.error import ConsumeError, KeySerializationError, ValueSerializationError
from confluent_kafka.serialization import MessageField, SerializationContext

from srm.client.consumer import FailoverConsumer
from srm.client.producer import DeliveryCallback, FailoverProducer


class FailoverSerializingProducer(FailoverProducer):
    """A FailoverProducer with ``key.serializer``, ``value.serializer`` and their builders.

    :meth:`produce` has the argument order of ``confluent_kafka.SerializingProducer``: the key
    before the value. A serialiser that names its subjects by the cluster id needs a fixed id,
    because a move changes the cluster's own.
    """

    def __init__(self, conf: Mapping[str, Any], **arguments: Any) -> None:
        specs, plain = pop_serde_props(dict(conf), "key.serializer", "value.serializer")
        (self._key, self._value), self._owned_serdes, plain = build_serdes(specs, plain)
        super().__init__(plain, **arguments)

    def produce(  # type: ignore[override]  # the order of SerializingProducer
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Serialise and hand over one record.

        Raises:
            KeySerializationError: the key cannot be serialised.
            ValueSerializationError: the value cannot be serialised.
        """
        self._check_open()
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self._key is not None:
            try:
                key = self._key(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._value is not None:
            try:
                value = self._value(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(
            topic,
            value,
            key,
            partition=partition,
            on_delivery=on_delivery,
            timestamp=timestamp,
            headers=headers,
        )

    def close(self) -> bool:
        """Close the producer, then the serialisers that it built."""
        result = super().close()
        owned, self._owned_serdes = self._owned_serdes, []
        close_serdes(owned)
        return result


class FailoverDeserializingConsumer(FailoverConsumer):
    """A FailoverConsumer with ``key.deserializer``, ``value.deserializer`` and their builders."""

    _deserialize = DeserializingConsumer._deserialize  # noqa: SLF001 -- needs only these two:

    def __init__(self, conf: Mapping[str, Any], **arguments: Any) -> None:
        specs, plain = pop_serde_props(dict(conf), "key.deserializer", "value.deserializer")
        serdes, self._owned_serdes, plain = build_serdes(specs, plain)
        self._key_deserializer, self._value_deserializer = serdes
        super().__init__(plain, **arguments)

    def poll(self, timeout: float = -1) -> Any:
        """Return the next message with its key and value deserialised.

        Raises:
            ConsumeError: the message is an error.
            KeyDeserializationError: the key cannot be deserialised.
            ValueDeserializationError: the value cannot be deserialised.
        """
        message = super().poll(timeout)
        return None if message is None else self._plain(message)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return a batch, each message as from :meth:`poll`."""
        return [self._plain(message) for message in super().consume(num_messages, timeout)]

    def _plain(self, message: Any) -> Any:
        if message.error() is not None:
            raise ConsumeError(message.error(), kafka_message=message)
        return self._deserialize(message)

    def close(self) -> None:
        """Close the consumer, then the deserialisers that it built."""
        super().close()
        owned, self._owned_serdes = self._owned_serdes, []
        close_serdes(owned)
