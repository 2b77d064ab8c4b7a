"""Removal of members: an answer that is an error as a whole does not count as success."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.kafka.admin.asked_clients import AskedClients

from srm.errors import UnavailableError
from srm.kafka.admin import groups
from srm.kafka.wire.messages import Message, Request
from srm.kafka.wire.requests import DESCRIBE_CLASSIC, DESCRIBE_CONSUMER, LEAVE_GROUP

NOT_COORDINATOR, UNSUPPORTED_VERSION = 16, 35
MEMBER = {"member": "m-1", "instance_id": None, "client_id": "worker-1"}


@dataclass
class Brokers:
    """A coordinator with one member in the group, and error codes by request."""

    errors: dict[Message, int]
    nodes: tuple[int, ...] = (1,)
    coordinators: dict[str, int] = field(default_factory=lambda: {"shop": 1})
    left: int = 0

    async def serves(self, _node: int, _message: Message) -> bool:
        return True

    async def query(self, _node: int, request: Request) -> dict[str, Any]:
        code = self.errors.get(request.message, 0)
        if request.message is LEAVE_GROUP:
            self.left += not code
            members = [] if code else [{"member": "m-1", "instance_id": None, "error_code": 0}]
            return {"error_code": code, "members": members}
        members = [] if code or request.message is DESCRIBE_CONSUMER else [MEMBER]
        return {"groups": [{"group": "shop", "error_code": code, "members": members}]}


def remove(brokers: Brokers) -> None:
    groups.remove_members(AskedClients(brokers), "shop", ["m-1"])


@pytest.mark.parametrize("request_", [DESCRIBE_CLASSIC, LEAVE_GROUP])
def test_a_coordinator_that_has_moved_has_removed_no_member(request_: Message) -> None:
    brokers = Brokers({request_: NOT_COORDINATOR})

    with pytest.raises(UnavailableError, match="removing members of group 'shop'"):
        remove(brokers)

    assert brokers.left == 0


def test_a_broker_without_groups_of_one_kind_removes_members_of_the_other() -> None:
    brokers = Brokers({DESCRIBE_CONSUMER: UNSUPPORTED_VERSION})

    remove(brokers)

    assert brokers.left == 1
