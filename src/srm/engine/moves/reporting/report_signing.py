"""Who writes reports: the key that signs them, the programs and the configuration in use."""

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
    """What a report says of those who carried the move out, and the key it is signed with.

    ``read_key`` reads the key when it is needed, and returns None where none is configured.
    """

    read_key: Callable[[], SigningKey | None] = _no_key
    versions: Mapping[str, str] = field(default_factory=dict)
    config_sha256: str = ""

    def key(self) -> SigningKey | None:
        """Return the key; None, with a line in the log, where it cannot be read.

        On the day it counts a move does not wait for a key file: the report is kept without a
        signature, and gets one from the next call that has the key.
        """
        try:
            return self.read_key()
        except UsageError as error:
            log.error("the report is not signed: %s", error)  # noqa: TRY400 -- one line
            return None
