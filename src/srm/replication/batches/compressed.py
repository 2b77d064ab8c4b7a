"""Opening small compressed batches, and compressing what was made of them.

A batch is opened to be merged only where that costs less than the request it saves (see
docs/decisions/0010). Compression is at the lowest level: a thousand records together take less room
so than sixteen at a time do at a higher one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import cramjam

from srm.errors import IntegrityError
from srm.replication.batches.batch import HEADER_SIZE
from srm.replication.codecs import LZ4, SNAPPY, ZSTD, compress_snappy, snappy_blocks

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_NOT_COUNTED: Final = 12
_CODEC_AT: Final = 22
_CODEC_BITS: Final = 0x07


class _Codec(NamedTuple):
    compress: Callable[[memoryview], bytes]
    decompress_into: Callable[[memoryview, memoryview], int]
    """Raises any exception where it cannot be done, or where there is too little room."""


def _compress_lz4(data: memoryview) -> bytes:
    # Kafka reads independent blocks only (KIP-57).
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_zstd(data: memoryview) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=1))


def _decompress_snappy(data: memoryview, room: memoryview) -> int:
    made = 0
    for block in snappy_blocks(data):
        made += cramjam.snappy.decompress_raw_into(block, room[made:])
    return made


_CODECS: Final[Mapping[int, _Codec]] = {
    SNAPPY: _Codec(compress_snappy, _decompress_snappy),
    LZ4: _Codec(_compress_lz4, lambda data, room: int(cramjam.lz4.decompress_into(data, room))),
    ZSTD: _Codec(_compress_zstd, lambda data, room: int(cramjam.zstd.decompress_into(data, room))),
}
MERGED_CODECS: Final = frozenset(_CODECS)
"""Codecs of which small batches are merged; gzip takes ten times as long as a request."""


def codec_of(batch: memoryview) -> int:
    """Number of the codec of a batch, 0 for none."""
    return batch[_CODEC_AT] & _CODEC_BITS


def open_into(batch: memoryview, room: memoryview) -> int:
    """Write a compressed batch uncompressed into a room, with a wrong checksum; return its size."""
    codec = _CODECS[codec_of(batch)]
    room[:HEADER_SIZE] = batch[:HEADER_SIZE]
    room[_CODEC_AT] &= ~_CODEC_BITS & 0xFF
    try:
        size = codec.decompress_into(batch[HEADER_SIZE:], room[HEADER_SIZE:])
    except Exception as error:  # each codec has its own
        raise IntegrityError(f"records cannot be decompressed: {error!r}") from error
    _LENGTH.pack_into(room, _LENGTH_AT, HEADER_SIZE + size - _NOT_COUNTED)
    return HEADER_SIZE + size


def compress(batch: memoryview, codec: int) -> memoryview:
    """Return an uncompressed batch as a compressed one, but for its length and checksum."""
    made = bytearray(batch[:HEADER_SIZE])
    made[_CODEC_AT] |= codec
    made += _CODECS[codec].compress(batch[HEADER_SIZE:])
    return memoryview(made)
