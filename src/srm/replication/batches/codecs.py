"""Kafka's compression codecs by number, and compressed batches that are opened to be merged.

A batch is opened only where that costs less than the request it saves (docs/decisions/0010).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import cramjam

from srm.errors import IntegrityError
from srm.replication.batches.batch import CODEC_BITS, HEADER_SIZE, INT32, LENGTH_AT, PREFIX

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
_XERIAL_HEADER: Final = len(_XERIAL_MAGIC + _XERIAL_VERSIONS)
_XERIAL_SIZE: Final = 32 << 10


def decompress(codec: int, data: memoryview) -> bytes:
    """Unpack the records of a batch; any exception where that cannot be done."""
    if codec == GZIP:
        return zlib.decompress(data, zlib.MAX_WBITS | 16)
    if codec == SNAPPY:
        return b"".join(bytes(cramjam.snappy.decompress_raw(b)) for b in snappy_blocks(data))
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.decompress(data))
    raise ValueError(f"codec {codec} is not known")


def snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """Cut what Java's clients write, blocks of 32 KB in the format of snappy-java (xerial)."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield data
        return
    at = _XERIAL_HEADER
    while at < len(data):
        (size,) = INT32.unpack_from(data, at)
        at += INT32.size
        if not 0 < size <= len(data) - at:
            raise ValueError("a block is not complete")
        yield data[at : at + size]
        at += size


def compress_snappy(data: memoryview) -> bytes:
    made = bytearray(_XERIAL_MAGIC + _XERIAL_VERSIONS)
    for at in range(0, len(data), _XERIAL_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_SIZE]))
        made += INT32.pack(len(block)) + block
    return bytes(made)


_CODEC_AT: Final = 22


class _Codec(NamedTuple):
    compress: Callable[[memoryview], bytes]
    decompress_into: Callable[[memoryview, memoryview], int]
    """Raises any exception where it cannot be done, or where there is too little room."""


def _compress_lz4(data: memoryview) -> bytes:
    # Kafka reads independent blocks only (KIP-57).
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _decompress_snappy(data: memoryview, room: memoryview) -> int:
    made = 0
    for block in snappy_blocks(data):
        made += cramjam.snappy.decompress_raw_into(block, room[made:])
    return made


_CODECS: Final[Mapping[int, _Codec]] = {
    SNAPPY: _Codec(compress_snappy, _decompress_snappy),
    LZ4: _Codec(_compress_lz4, lambda data, room: int(cramjam.lz4.decompress_into(data, room))),
    ZSTD: _Codec(
        lambda data: bytes(cramjam.zstd.compress(data, level=1)),
        lambda data, room: int(cramjam.zstd.decompress_into(data, room)),
    ),
}
MERGED_CODECS: Final = frozenset(_CODECS)
"""Codecs of which small batches are merged; gzip takes ten times as long as a request."""


def codec_of(batch: memoryview) -> int:
    """Number of the codec of a batch, 0 for none."""
    return batch[_CODEC_AT] & CODEC_BITS


def open_into(batch: memoryview, room: memoryview) -> int:
    """Write a compressed batch uncompressed into a room, with a wrong checksum; return its size."""
    codec = _CODECS[codec_of(batch)]
    room[:HEADER_SIZE] = batch[:HEADER_SIZE]
    try:
        size = codec.decompress_into(batch[HEADER_SIZE:], room[HEADER_SIZE:])
    except Exception as error:  # each codec has its own
        raise IntegrityError(f"records cannot be decompressed: {error!r}") from error
    _mark_opened(room, HEADER_SIZE + size)
    return HEADER_SIZE + size


def open_batch(batch: memoryview) -> bytearray:
    """Return a compressed batch of any size uncompressed, with a wrong checksum."""
    try:
        records = decompress(codec_of(batch), batch[HEADER_SIZE:])
    except Exception as error:  # as above
        raise IntegrityError(f"records cannot be decompressed: {error!r}") from error
    made = bytearray(batch[:HEADER_SIZE])
    made += records
    _mark_opened(made, len(made))
    return made


def _mark_opened(batch: bytearray | memoryview, size: int) -> None:
    batch[_CODEC_AT] &= ~CODEC_BITS & 0xFF
    INT32.pack_into(batch, LENGTH_AT, size - PREFIX)


def compress(batch: memoryview, codec: int) -> memoryview:
    """Return an uncompressed batch as a compressed one, but for its length and checksum."""
    made = bytearray(batch[:HEADER_SIZE])
    made[_CODEC_AT] |= codec
    made += _CODECS[codec].compress(batch[HEADER_SIZE:])
    return memoryview(made)
