"""The private key that reports of moves are signed with, where the properties file names one.

Every process of srm reads a configuration; only one that signs or checks loads the library for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from srm.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from srm.domain.moves.revisions import PublicKey, SigningKey

_LOCATION: Final = "report.signing.key.location"


@dataclass(frozen=True, slots=True)
class ReportKey:
    """File of the key, relative to the folder of the properties file, and its password."""

    file: Path | None = None
    password: str | None = field(default=None, repr=False)

    def read(self) -> SigningKey | None:
        """Read the key; None where none is named."""
        if self.file is None:
            return None
        from srm.domain.moves.revisions import SigningKey  # noqa: PLC0415 -- see above

        try:
            return SigningKey.read(self.file.read_bytes(), self.password)
        except OSError as error:
            raise ConfigError(f"{_LOCATION}: {self.file}: {error.strerror}") from None
        except UsageError as error:
            raise ConfigError(f"{_LOCATION}: {self.file}: {error}") from None


def read_public_key(file: Path) -> PublicKey:
    """Read a public key that reports are checked with."""
    from srm.domain.moves.revisions import PublicKey  # noqa: PLC0415 -- see above

    try:
        return PublicKey.read(file.read_bytes())
    except OSError as error:
        raise UsageError(f"public key {file}: {error.strerror}") from None
    except UsageError as error:
        raise UsageError(f"public key {file}: {error}") from None
