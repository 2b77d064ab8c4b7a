"""CRC-32C of batches."""

from __future__ import annotations

try:
    from crc32c import crc32c
except ModuleNotFoundError:  # the base install: commands check a few batches
    from srm.extras import require
    from srm.replication.native.library import native_library

    def crc32c(data: bytes | memoryview, value: int = 0) -> int:
        """Compute it natively; only the data plane continues from another value."""
        library = native_library()
        if library is None or value:
            return int(require("crc32c").crc32c(data, value))
        return library.crc32c(memoryview(data))


__all__ = ["crc32c"]
