"""A headless Chromium for the tests of a file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

expect.set_options(timeout=120_000)


# Not for the session: as long as Playwright is there, its event loop runs in this thread, and no
# other test could run one.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; without it only a run that leaves nothing out fails."""
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("TEST_EVERYTHING"):
            pytest.fail("chromium is missing: apt-get install chromium")
        pytest.skip("there is no chromium")
    with sync_playwright() as playwright:
        # Root, as in a container, has no sandbox; the pages are our own.
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
