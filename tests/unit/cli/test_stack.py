"""``srm stack up`` and a SIGTERM that comes before all is ready."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from srm.cli import stack


@pytest.fixture(autouse=True)
def unharmed() -> Iterator[None]:
    """The process of the tests outlives a SIGTERM, whoever handles it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_while_it_starts_ends_it_as_ctrl_c_does(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[type[BaseException]] = []

    class Starting:
        def up(self, _report: object) -> None:
            try:
                signal.raise_signal(signal.SIGTERM)
            except BaseException as error:
                ended.append(type(error))
                raise

    monkeypatch.setattr(stack, "_stack", lambda *_, **__: Starting())

    assert CliRunner().invoke(stack.app, ["up"]).exit_code != 0
    assert ended == [KeyboardInterrupt]
