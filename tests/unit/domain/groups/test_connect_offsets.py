"""The offsets of MirrorMaker 2's connector, in the bytes of Kafka Connect."""

from __future__ import annotations

import pytest

from srm.domain.groups.mm2_records import ConnectOffset, partition_of
from srm.domain.names.topics import TopicPartition

KEY = b'["MirrorSourceConnector",{"cluster":"P","partition":0,"topic":"Payments"}]'
PAYMENTS = ConnectOffset("MirrorSourceConnector", "P", TopicPartition("Payments", 0), 41)


def test_an_offset_has_the_bytes_of_connect() -> None:
    assert (PAYMENTS.key(), PAYMENTS.value()) == (KEY, b'{"offset":41}')
    assert ConnectOffset.decode(KEY, b'{"offset":41}') == PAYMENTS


def test_a_key_is_read_in_any_order() -> None:
    key = b'["x->y.MirrorSourceConnector", {"topic":"Payments","cluster":"P","partition":0}]'
    found = ConnectOffset.decode(key, b'{"offset":41}')
    assert found is not None
    assert (found.connector, found.partition) == ("x->y.MirrorSourceConnector", PAYMENTS.partition)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["MirrorCheckpointConnector",{"sourceClusterAlias":"P"}]', b'{"offset":0}'),
        (b'["jdbc",{"table":"a"}]', b'{"offset":0}'),
        (KEY, b"{}"),
        (b"not json", b""),
    ],
)
def test_records_of_other_connectors_are_left_alone(key: bytes, value: bytes) -> None:
    assert ConnectOffset.decode(key, value) is None


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # of UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_goes_to_the_partition_of_kafka_s_producer(key: bytes, hashed: int) -> None:
    assert partition_of(key, 1 << 31) == hashed & 0x7FFFFFFF
