"""A headless Chromium, and pages in it whose console has to stay clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page
from tests.browser.answers import Answers, Offsets
from tests.chromium import browser
from tests.served import served
from tests.service_site import site

from srm.service.app import create_app
from srm.service.views.views import Views

__all__ = ("browser",)

WIDE, NARROW = 1280, 390
_SANDBOX = "can escape its sandboxing"  # so Chromium says of each frame as Airflow makes them
_HEIGHT = {WIDE: 800, NARROW: 844}


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open pages of a colour scheme and width; at the end none has complained."""
    contexts, complaints = [], list[str]()

    def opened(scheme: str = "light", width: int = WIDE, *, script: bool = True) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": _HEIGHT[width]},
            color_scheme=scheme,  # type: ignore[arg-type]
            java_script_enabled=script,
            locale="en-GB",
            timezone_id="Europe/Berlin",
        )
        context.set_default_timeout(120_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda message: (
                complaints.append(f"{message.text} ({message.location.get('url')})")
                if message.type in {"error", "warning"} and _SANDBOX not in message.text
                else None
            ),
        )
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def views() -> Views:
    """The prepared site, which tests may change."""
    return site()


@pytest.fixture(scope="module")
def address(views: Views) -> Iterator[str]:
    """Where it is served; questions of why are answered by the test."""
    app = create_app(views)
    app.state.explaining = Answers()
    app.state.committed = Offsets()
    with served(app) as found:
        yield found
