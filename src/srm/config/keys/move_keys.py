"""Keys that say how the clients of a move are redirected; the loader makes one value of them."""

from __future__ import annotations

from typing import Final

from srm.config.keys.config_key import our_key

MOVE_KEYS: Final = (
    our_key(
        "failover.redirect",
        "list",
        "routing",
        "Redirectors that stop the clients of a move from the flow's source to its target and send "
        "them to the target, in this order: `routing` (always, and first), `webhook`, `command`, "
        "`manual` (docs/redirect.md). A move may name others.",
    ),
    our_key(
        "failover.webhook.url",
        "string",
        "",
        "Address that the redirector `webhook` posts to; it is shown nowhere.",
    ),
    our_key(
        "failover.webhook.secret",
        "string",
        "",
        "Key of the signature (HMAC-SHA256) of what is posted.",
    ),
    our_key(
        "failover.webhook.timeout.seconds",
        "seconds",
        "30",
        "For how long a post is tried again before it counts as failed.",
    ),
    our_key(
        "failover.command",
        "string",
        "",
        "Program with arguments that the redirector `command` runs; no shell is involved.",
    ),
    our_key(
        "failover.command.timeout.seconds",
        "seconds",
        "60",
        "For how long it may run, and be tried again, before it is killed and counts as failed.",
    ),
    our_key(
        "failover.fence",
        "choice",
        "none",
        "`acl`: writes to the topics that move are denied on the source from the hold on, until a "
        "release or the move back.",
        choices=("none", "acl"),
    ),
)
