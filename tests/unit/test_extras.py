"""Libraries that only extras install: they are named when they are missing."""

from __future__ import annotations

import json

import pytest

from srm import extras
from srm.extras import MissingExtraError, library, require


def test_a_missing_library_says_which_extra_installs_it(monkeypatch) -> None:
    monkeypatch.setitem(extras._EXTRA_OF, "no_such_library", "service")

    with pytest.raises(MissingExtraError) as raised:
        require("no_such_library.inside")

    assert str(raised.value) == (
        "this needs the extra service: no_such_library is not installed; "
        "pip install 'kafka-srm[service]'"
    )
    assert raised.value.exit_code == 2


def test_a_library_is_imported_when_a_name_of_it_is_used(monkeypatch) -> None:
    monkeypatch.setitem(extras._EXTRA_OF, "no_such_library", "parquet")
    missing = library("no_such_library")

    with pytest.raises(MissingExtraError, match=r"\[parquet\]"):
        missing.anything()
    assert library("json").dumps is json.dumps


def test_what_a_library_itself_lacks_is_not_hidden(tmp_path, monkeypatch) -> None:
    (tmp_path / "half_installed.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        require("half_installed")
