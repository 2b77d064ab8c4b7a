"""The native library: its functions as Python's, called without the interpreter's lock.

It is built at install (``hatch_build.py``), for one platform; without it Python does the same.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import threading
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char, c_int16, c_int32, c_int64, c_uint32, c_void_p
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

logger = logging.getLogger(__name__)

FILE: Final = Path(__file__).with_name("libsrm.so")

_VERSION: Final = 4
_MOST_OUTGOING: Final = 4096
_MOST_STRETCHES: Final = 1 << 16
_OUTGOING: Final = struct.Struct("=qqqqiiii")
_STRETCH: Final = struct.Struct("=qq")


class Kind(IntEnum):
    """Treatment of a stretch of the input (``merge.c``)."""

    DROPPED = 0
    PASSED = 1
    MADE = 2
    PLAIN = 3
    DISORDER = 4


class Outgoing(NamedTuple):
    """One stretch of the input and what becomes of it; ``stretches``: their number.

    ``at`` and ``size`` are bytes of the input, or of the room if made.
    """

    at: int
    size: int
    next: int
    max_time: int
    kind: int
    records: int
    epoch: int
    stretches: int


class Merged(NamedTuple):
    """Output for some batches, up to the byte ``end``; ``more``: output or results were full."""

    end: int
    more: bool
    outgoing: Sequence[Outgoing]
    stretches: Sequence[tuple[int, int]]


def layout(*fields: tuple[Any, str]) -> list[tuple[str, Any]]:
    """Return the fields of a C struct in order, given as types with the names of some fields."""
    return [(name, kind) for kind, names in fields for name in names.split()]


class _Job(Structure):
    _fields_ = layout(
        (c_void_p, "in"),
        (c_int64, "size wanted limit largest"),
        (c_void_p, "room"),
        (c_int64, "room_size"),
        (c_void_p, "outs"),
        (c_int64, "most_outs"),
        (c_void_p, "stretches"),
        (c_int64, "most_stretches n_outs n_stretches"),
        (c_int32, "unchecked more"),
    )


class Compared(Structure):
    """A batch of ours, uncompressed, and how far the source has it; its memory has to stay."""

    _fields_ = layout((c_void_p, "batch"), (c_int64, "size at"), (c_int32, "index with_time"))


class NativeLibrary:
    """The functions of one built library, for any number of threads; OSError: it cannot be loaded.

    Calls with results take turns: results share one buffer until they are copied.
    ``use_instruction``: the processor's own CRC-32C, where it has one.
    """

    def __init__(self, path: Path = FILE, *, use_instruction: bool = True) -> None:
        self._library = library = ctypes.CDLL(str(path))
        compared = POINTER(Compared), c_void_p, c_int64, c_void_p, c_int64
        _declare(library.srm_merge, c_int64, POINTER(_Job))
        _declare(library.srm_rewrite, None, c_void_p, c_int64, c_int64, c_int16, c_int32)
        _declare(library.srm_seal, None, c_void_p, c_int64)
        _declare(library.srm_crc32c, c_uint32, c_void_p, c_int64)
        _declare(library.srm_compare, c_int64, *compared)
        self.frames, self.pairs, self.behind = (
            _declare(library.srm_frames, c_int64, c_void_p),
            _declare(library.srm_pairs, c_int64, c_void_p),
            _declare(library.srm_behind, c_int64, c_void_p, c_int64),
        )
        library.srm_begin.restype = c_int32
        if (version := library.srm_begin(int(use_instruction))) != _VERSION:
            raise OSError(f"{path} is of version {version}, not {_VERSION}")
        self._turn = threading.Lock()
        self._outgoing = bytearray(_MOST_OUTGOING * _OUTGOING.size)
        self._stretches = bytearray(_MOST_STRETCHES * _STRETCH.size)
        self._job = _Job(
            outs=address(self._outgoing),
            most_outs=_MOST_OUTGOING,
            stretches=address(self._stretches),
            most_stretches=_MOST_STRETCHES,
        )

    def merge(
        self,
        batches: memoryview,
        room: bytearray,
        *,
        wanted: int,
        limit: int,
        largest: int,
        unchecked: bool = False,
    ) -> Merged:
        """Decide how each batch travels, and make those that do not travel as they are.

        It ends before an incomplete batch, or where the room or that for results is full: there is
        more then, for a new room. A batch that does not fit into an empty room is left to the plain
        path. ``limit``: bytes up to which batches are merged, 0: none are; ``largest``: above, none
        is merged. ``unchecked``: the checksums are known to be right. All memory is writable.
        """
        with self._turn:
            job = self._job
            setattr(job, "in", address(batches))
            job.size, job.wanted, job.limit, job.largest = len(batches), wanted, limit, largest
            job.room, job.room_size, job.unchecked = address(room), len(room), unchecked
            end = self._library.srm_merge(job)
            outgoing = memoryview(self._outgoing)[: job.n_outs * _OUTGOING.size]
            stretches = memoryview(self._stretches)[: job.n_stretches * _STRETCH.size]
            return Merged(
                end,
                bool(job.more),
                list(map(Outgoing._make, _OUTGOING.iter_unpack(outgoing))),
                list(_STRETCH.iter_unpack(stretches)),
            )

    def rewrite(self, batch: memoryview, producer: int, epoch: int, sequence: int) -> None:
        """Make a batch ours, in place: as :func:`srm.replication.batches.batch.rewrite`."""
        self._library.srm_rewrite(address(batch), len(batch), producer, epoch, sequence)

    def seal(self, batch: memoryview) -> None:
        self._library.srm_seal(address(batch), len(batch))

    def crc32c(self, data: memoryview) -> int:
        read = np.frombuffer(data, np.uint8)  # ctypes takes no address of what is read-only
        return int(self._library.srm_crc32c(read.ctypes.data, len(read)))

    def compare(self, ours: Compared, theirs: memoryview) -> list[tuple[int, int]] | None:
        """Return our next records' (first source offset, count) in a batch of the source.

        None: it does not equal them (``compare.c``).
        """
        with self._turn:
            room = self._stretches
            found = self._library.srm_compare(
                ours, address(theirs), len(theirs), address(room), _MOST_STRETCHES
            )
            if found < 0:
                return None
            return list(_STRETCH.iter_unpack(memoryview(room)[: found * _STRETCH.size]))


def _declare(function: Any, result: Any, *arguments: Any) -> Any:
    function.argtypes, function.restype = arguments, result
    return function


def address(data: bytearray | memoryview) -> int:
    """Return where writable memory is, 0 of none."""
    return ctypes.addressof(c_char.from_buffer(data)) if len(data) else 0


@cache
def native_library() -> NativeLibrary | None:
    """Return the library, None where srm was installed without one; that is logged once."""
    try:
        return NativeLibrary()
    except (OSError, AttributeError) as error:  # there is none, or it is of another version
        reason = "it was not built" if not FILE.exists() else str(error)
        logger.warning(
            "without the native library, so slower: %s; install srm again where there is a "
            "C compiler (docs/running.md)",
            reason,
        )
        return None
