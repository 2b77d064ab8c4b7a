"""Origin of reports: the signing key, the program versions and the configuration in use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from srm.errors import UsageError

if TYPE_CHECKING:
    from srm.domain.moves.report.signing_keys import SigningKey

log = logging.getLogger(__name__)


def _no_key() -> SigningKey | None:
    return None


@dataclass(frozen=True)
class Notary:
    """Versions and configuration of the move's programs, and the key that signs the report.

    ``read_key`` reads the key when it is needed, and returns None if none is configured.
    """

    read_key: Callable[[], SigningKey | None] = _no_key
    versions: Mapping[str, str] = field(default_factory=dict)
    config_sha256: str = ""

    def key(self) -> SigningKey | None:
        """Return the key; None if it cannot be read, which is logged.

        A move does not wait for a key file: the report is stored unsigned, and the next call that
        has the key signs it.
        """
        try:
            return self.read_key()
        except UsageError as error:
            log.error("the report is not signed: %s", error)  # noqa: TRY400 -- one line
            return None
