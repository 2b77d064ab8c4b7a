"""Last known positions of groups: checkpoints on the target, and srm's own writes there.

A move without its source uses these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from srm.domain.groups.ledger import GroupLedger
from srm.domain.groups.proof_records import FlowProof
from srm.domain.moves.records.positions import LastPlace
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicDescription
from srm.engine.groups.checkpoints import read_checkpoints, read_ledger
from srm.engine.groups.proving import read_proof
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.planning.facts import Away


@dataclass(frozen=True)
class LastPlaces:
    """Last known positions with their times (epoch milliseconds), by group and target partition.

    ``topics``: all topics of the target.
    ``proof``: result of the flow's last emission.
    """

    alias: str
    topics: Mapping[str, TopicDescription]
    places: Mapping[str, Mapping[TopicPartition, tuple[LastPlace, int]]]
    ledger: GroupLedger
    proof: FlowProof | None

    def away(self, groups: Collection[str]) -> Away:
        """Return the known facts of a lost source, for some groups."""
        known_ms, still = dict[str, int](), set[str]()
        for group in groups:
            times = [time_ms for _, time_ms in self.places.get(group, {}).values()]
            if not times:
                continue
            proof = self.proof
            confirmed = proof is not None and proof.confirms(group)
            # An unchanged checkpoint is not rewritten, so the time of the emission counts.
            emitted_ms = proof.time_ms if proof is not None and confirmed else 0
            known_ms[group] = max(*times, emitted_ms)
            if confirmed and max(times) < emitted_ms:
                still.add(group)
        found = {
            group: {place: last for place, (last, _) in self.places.get(group, {}).items()}
            for group in groups
        }
        return Away(self.alias, found, known_ms, frozenset(still))


def read_last_places(
    context: MoveContext, on_target: Mapping[str, TopicDescription], topics: Collection[str]
) -> LastPlaces:
    """Read the newer of checkpoint and settled own write of each group and partition.

    ``topics``: wanted topics, by their names on the target.
    """
    target, config = context.target, context.forward.config
    wanted = frozenset(topics)
    ledger = read_ledger(target, on_target)
    topic = internal_topics.checkpoints(config.flow.source, config.policy.separator)
    found = dict[str, dict[TopicPartition, tuple[LastPlace, int]]]()
    for one in read_checkpoints(target, topic, on_target):
        checkpoint, place = one.checkpoint, one.checkpoint.topic_partition
        if place.topic in wanted:
            last = LastPlace(checkpoint.downstream_offset, checkpoint.upstream_offset)
            found.setdefault(checkpoint.group, {})[place] = last, one.time_ms
    for entry in ledger.entries():
        place = entry.topic_partition
        if place.topic not in wanted or not entry.settled:
            continue
        places = found.setdefault(entry.group, {})
        known = places.get(place)
        if known is not None and known[0].offset == entry.intended:
            places[place] = known[0], max(known[1], entry.time_ms)
        elif known is None or entry.time_ms > known[1]:
            places[place] = LastPlace(entry.intended, None, by_srm=True), entry.time_ms
    return LastPlaces(config.flow.source, on_target, found, ledger, read_proof(target, config.flow))
