"""Kafka's compression codecs by number: records of any size unpacked."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import cramjam

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
_XERIAL_HEADER: Final = len(_XERIAL_MAGIC + _XERIAL_VERSIONS)
_XERIAL_SIZE: Final = 32 << 10
_XERIAL_BLOCK: Final = struct.Struct(">i")


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
        (size,) = _XERIAL_BLOCK.unpack_from(data, at)
        at += _XERIAL_BLOCK.size
        if not 0 < size <= len(data) - at:
            raise ValueError("a block is not complete")
        yield data[at : at + size]
        at += size


def compress_snappy(data: memoryview) -> bytes:
    """Pack records in that format."""
    made = bytearray(_XERIAL_MAGIC + _XERIAL_VERSIONS)
    for at in range(0, len(data), _XERIAL_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_SIZE]))
        made += _XERIAL_BLOCK.pack(len(block)) + block
    return bytes(made)
