"""Translated offsets for kafka-consumer-groups, from the target's checkpoints alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Cluster
from srm.engine.groups.checkpoints import read_checkpoints
from srm.errors import NotFoundError

_SHOWN_GROUPS = 5


def checkpoints(
    target: Cluster, flow: Flow, group: str | None = None, separator: str = "."
) -> tuple[Checkpoint, ...]:
    """Return the latest checkpoint of each group and partition; a former topic's is the start."""
    topic = internal_topics.checkpoints(flow.source, separator)
    where = f"{topic} on cluster {target.alias}"
    found = [one.checkpoint for one in read_checkpoints(target, topic, target.topics())]
    found.sort(key=lambda checkpoint: (checkpoint.group, checkpoint.topic_partition))
    if not found:
        raise NotFoundError(
            f"{where} holds no checkpoints: select groups and topics of {flow} and let it run, "
            f"srm status --flow '{flow}' shows what is missing"
        )
    chosen = tuple(each for each in found if group is None or each.group == group)
    if not chosen:
        raise NotFoundError(f"{where} holds no checkpoint of group {group!r}; {_name_known(found)}")
    return chosen


def _name_known(found: Iterable[Checkpoint]) -> str:
    groups = list(dict.fromkeys(checkpoint.group for checkpoint in found))
    more = f" and {len(groups) - _SHOWN_GROUPS} more" if len(groups) > _SHOWN_GROUPS else ""
    return f"it holds those of {', '.join(groups[:_SHOWN_GROUPS])}{more}"


def to_csv(chosen: Iterable[Checkpoint], *, with_group: bool) -> str:
    """Return the rows that ``kafka-consumer-groups --reset-offsets --from-file`` reads.

    Columns are ``[group,]topic,partition,offset`` without a header line (tools' CsvUtils). The
    offset is the one on the target.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for checkpoint in chosen:
        group = (checkpoint.group,) if with_group else ()
        place = checkpoint.topic_partition
        rows.writerow((*group, place.topic, place.partition, checkpoint.downstream_offset))
    return text.getvalue()
