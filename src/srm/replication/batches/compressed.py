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
from aiokafka.codec import snappy_encode

from srm.errors import IntegrityError
from srm.replication.batches.batch import HEADER_SIZE

_SNAPPY: Final = 2
_LZ4: Final = 3
_ZSTD: Final = 4

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_NOT_COUNTED: Final = 12
_CODEC_AT: Final = 22
_CODEC_BITS: Final = 0x07
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_XERIAL_BLOCK: Final = struct.Struct(">i")


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
    """Java's clients write blocks of 32 KB in the format of snappy-java (xerial)."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return int(cramjam.snappy.decompress_raw_into(data, room))
    at, made = _XERIAL_HEADER, 0
    while at < len(data):
        (size,) = _XERIAL_BLOCK.unpack_from(data, at)
        at += _XERIAL_BLOCK.size
        if not 0 < size <= len(data) - at:
            raise ValueError("a block is not complete")
        made += cramjam.snappy.decompress_raw_into(data[at : at + size], room[made:])
        at += size
    return made


_CODECS: Final[Mapping[int, _Codec]] = {
    _SNAPPY: _Codec(snappy_encode, _decompress_snappy),
    _LZ4: _Codec(_compress_lz4, cramjam.lz4.decompress_into),
    _ZSTD: _Codec(_compress_zstd, cramjam.zstd.decompress_into),
}
MERGED_CODECS: Final = frozenset(_CODECS)
"""Codecs of which small batches are merged; gzip takes ten times as long as a request."""


def codec_of(batch: memoryview) -> int:
    """Number of the codec of a batch, 0 for none."""
    return batch[_CODEC_AT] & _CODEC_BITS


def open_into(batch: memoryview, room: memoryview) -> int:
    """Write a compressed batch into a room as an uncompressed one; its checksum is not right.

    Returns:
        Its size.

    Raises:
        IntegrityError: its records cannot be decompressed, or not in there.
    """
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
