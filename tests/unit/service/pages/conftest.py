"""The prepared site behind a client."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from tests.service_site import site

from srm.service.app import create_app


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(site()), raise_server_exceptions=False)
