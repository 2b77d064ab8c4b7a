"""The properties file of the embedded stack: both flows of the clusters P and B, in MM2 syntax."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from srm.disk import disk_errors, write_atomically

_AIRFLOW_URL: Final = "service.airflow.url"
_TEMPLATE: Final = """\
# The two embedded clusters and both flows between them, in MirrorMaker 2's syntax.
# Written once by 'srm stack up': edit it as you like, it is kept.

clusters = P, B
P.bootstrap.servers = {P}
B.bootstrap.servers = {B}

P->B.enabled = true
B->P.enabled = true

# What is copied, and whose progress is carried over.
topics = Payments.*
groups = .*
tasks.max = 2

# Progress on the replica goes back to the original, so that a failback loses and repeats nothing.
reverse.checkpointing.enabled = true
B->P.reverse.checkpointed.topics = P\\\\.Payments.*
P->B.reverse.checkpointed.topics = B\\\\.Payments.*

emit.checkpoints.interval.seconds = 15
sync.group.offsets.enabled = true
refresh.topics.interval.seconds = 2
emit.heartbeats.interval.seconds = 1

# One broker each.
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
"""


def write_config(path: Path, addresses: Mapping[str, str]) -> None:
    """Write the properties file unless there is one; ``addresses`` by alias, ``P`` and ``B``.

    Raises:
        StackError: the file cannot be written.
    """
    if not path.exists():
        write_atomically(path, _TEMPLATE.format(**addresses).encode())


def name_airflow(path: Path, url: str) -> None:
    """Let the file say where Airflow is, for links from the pages, unless it says so already.

    Raises:
        StackError: the file cannot be read or written.
    """
    with disk_errors(path):
        text = path.read_text("utf-8")
    if _AIRFLOW_URL not in text:
        said = f"# Where the pages of srm-service find it.\n{_AIRFLOW_URL} = {url}\n"
        write_atomically(path, f"{text.rstrip()}\n\n{said}".encode())
