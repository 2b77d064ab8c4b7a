"""``srm stack up`` and a SIGTERM that comes before all is ready."""

from __future__ import annotations

import signal

import pytest
from typer.testing import CliRunner

from srm.cli.main import app
from srm_lab.cli import stack


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

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the tests outlive it in any case
    try:
        assert CliRunner().invoke(app, ["stack", "up"]).exit_code != 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended == [KeyboardInterrupt]
