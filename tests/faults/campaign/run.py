"""Plays one seed from start to verdict, and keeps what it leaves when the verdict is bad."""

from __future__ import annotations

import json
import logging
import shutil
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from tests.faults.campaign import checker
from tests.faults.campaign.brokers import Brokers, Pair, delete_topics
from tests.faults.campaign.convergence import Convergence
from tests.faults.campaign.director import STRANGER, Director
from tests.faults.campaign.elections import persistently
from tests.faults.campaign.history import TopicHistory
from tests.faults.campaign.plan import Plan
from tests.faults.campaign.slots import Slots
from tests.faults.campaign.workload import SKIPPED, Workload
from tests.integration.copying import CopyLab
from tests.maps import assemble

from srm.domain.flow_state.replication_records import (
    NOTES_PREFIX,
    STATE_PARTITIONS,
    PartitionNotes,
    PartitionStatus,
    with_notes,
)
from srm.domain.names import internal_topics
from srm.domain.names.record_headers import RecordSettings
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS
from srm.domain.offset_map.map_tree import Placed
from srm.engine.cluster_ports import TopicSpec
from srm.engine.map_reader import KafkaMapReader, MapPlaces
from srm.engine.ports import FlowMaps
from srm.errors import StackError
from srm_lab.testing.logs import Log, LoggedRecord, read_log, read_logs

logger = logging.getLogger(__name__)

_FILTER: Final = {
    "": RecordSettings(),
    "headers": RecordSettings(provenance=True, source_offsets=True),
    "filter": RecordSettings(exclude_headers=(SKIPPED,)),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one seed showed; no ``problems`` means that it passed."""

    seed: int
    setting: str
    policy: str
    scenarios: tuple[str, ...]
    records: int
    lost: int
    foreign: int
    claims: int
    seconds: float
    convergence_seconds: float
    problems: tuple[str, ...]

    def line(self) -> str:
        """Return the verdict for people."""
        names = Counter(self.scenarios)
        told = ", ".join(f"{name} x{n}" if n > 1 else name for name, n in names.items())
        result = "FAILED" if self.problems else "ok"
        return (
            f"seed {self.seed}: {result}, {self.records} records, {self.lost} lost, "
            f"{self.foreign} foreign, {self.seconds:.1f} s (copied "
            f"{self.convergence_seconds:.1f} s after the last fault), "
            f"{self.setting}/{self.policy}: {told}"
            + "".join(f"\n    {problem}" for problem in self.problems)
        )


class Run:
    """One seed."""

    def __init__(self, plan: Plan, pair: Pair, home: Path) -> None:
        self._plan = plan
        self._pair = pair
        self._home = home
        self._lab = persistently(
            "flow",
            lambda: CopyLab(
                pair.source_bootstrap,
                pair.target_bootstrap,
                target_replicas=pair.replicas,
                source_replicas=len(pair.source),
                data_loss_policy=plan.policy,
                records=_FILTER[plan.records],
            ),
        )
        self._topics: list[TopicHistory] = []
        self._numbers: Counter[str] = Counter()
        self._targets: dict[tuple[str, int], Log] = {}
        self._noted: dict[tuple[str, int], dict[tuple[str, str], int]] = {}

    def play(self) -> Verdict:
        """Play the plan and check what it has left."""
        began = time.monotonic()
        convergence = 0.0
        problems: list[str] = []
        slots = Slots(self._lab, self._plan.slots, self._home, self._pair.slots_target)
        try:
            persistently("topics", self._create_topics)
            workload = Workload(
                self._plan, self._pair.source_bootstrap, [t.name for t in self._topics]
            )
            slots.spread(p for t in self._topics for p in t.partitions)
            persistently("assign", slots.publish)
            slots.start_all()
            workload.start()
            director = Director(self._plan, self._pair, self._lab, self._topics, slots, workload)
            director.play()
            over = time.monotonic()
            logger.info("all steps are done")
            workload.end()
            logger.info("the writers have ended")
            waited = Convergence(self._pair, self._lab, self._topics, self._plan.policy)
            waited.wait(workload)
            convergence = time.monotonic() - over
            problems = director.problems + waited.problems
            logger.info("everything is copied %.1f s after the last fault", convergence)
            if not problems:
                problems = self._check(workload)
        except StackError:
            raise
        except Exception:
            logger.exception("seed %s", self._plan.seed)
            problems.append("the campaign broke: " + traceback.format_exc(limit=-3))
        finally:
            slots.close()
        logger.info("checked")
        if problems:
            self._keep(problems)
        self._tidy()
        return Verdict(
            self._plan.seed,
            self._plan.setting,
            self._plan.policy,
            self._plan.scenarios,
            self._numbers["records"],
            self._numbers["lost"],
            self._numbers["foreign"],
            self._numbers["claims"],
            round(time.monotonic() - began, 1),
            round(convergence, 1),
            tuple(problems),
        )

    def _create_topics(self) -> None:
        self._topics = []  # those of an attempt that failed stay empty
        for topic in self._plan.topics:
            name = f"T{uuid.uuid4().hex[:8]}"
            self._lab.source.create_topics(
                [TopicSpec(name, topic.partitions, len(self._pair.source), dict(topic.source))]
            )
            partitions = list(self._lab.remote(name, dict(topic.target)))
            history = TopicHistory(
                name,
                partitions[0].target_topic,
                partitions,
                topic.compacted,
                dict(topic.target),
                settings=_FILTER[self._plan.records],
            )
            history.begin_life(partitions, same_target=True)
            self._topics.append(history)

    # ----- the check

    def _check(self, workload: Workload) -> list[str]:
        statuses = persistently("statuses", self._status_history)
        maps = persistently("maps", self._maps)
        problems: list[str] = []
        persistently("targets", self._read_targets)
        for topic in self._topics:
            if topic.compacted:
                self._take_compacted(topic, workload)
            else:
                persistently("source", partial(topic.snapshot, self._pair))
            problems += [
                f"map unusable: {error}" for error in maps[topic.life.topic_id].errors.values()
            ]
            for p in topic.partitions:
                place = TopicPartition(p.topic, p.partition)
                found = checker.check_partition(
                    topic,
                    p.partition,
                    self._targets[topic.remote, p.partition],
                    STRANGER,
                    [maps[life.topic_id].maps.get(place) for life in topic.lives],
                    [s for s in statuses if (s.topic, s.partition) == (p.topic, p.partition)],
                    counted=sum(self._noted.get((p.topic, p.partition), {}).values()),
                    policy=self._plan.policy,
                )
                self._numbers["records"] += found.copied
                self._numbers["lost"] += found.lost
                self._numbers["foreign"] += found.foreign
                problems += found.problems
        return problems

    def _take_compacted(self, topic: TopicHistory, workload: Workload) -> None:
        """Remember what was written, and what of it the source has compacted away."""
        for p in topic.partitions:
            bootstrap, number = self._pair.source_bootstrap, p.partition
            left = dict(persistently("source", partial(read_log, bootstrap, topic.name, number)))
            topic.life.take(p.partition, workload.sent(topic.name, p.partition).items())
            topic.life.take(p.partition, left.items())
            topic.life.compacted[p.partition] = set(topic.life.records[p.partition]) - set(left)

    def _read_targets(self) -> None:
        self._targets = read_logs(
            self._pair.target_bootstrap,
            [(t.remote, p.partition) for t in self._topics for p in t.partitions],
        )

    def _status_history(self) -> list[PartitionStatus]:
        """Return every status that was ever written, and as one each note."""
        topic = internal_topics.replication(self._lab.flow.source)
        found: list[PartitionStatus | None] = []
        logs = (self._history(topic, number) for number in range(STATE_PARTITIONS))
        for _, record in chain.from_iterable(logs):
            if record.key is None or record.value is None:
                continue
            if record.key.startswith(b"status:"):
                found.append(PartitionStatus.decode(record.value))
            elif record.key.startswith(NOTES_PREFIX):
                notes = PartitionNotes.decode(record.value)
                found.append(with_notes(None, [notes]))
                counts = self._noted.setdefault((notes.topic, notes.partition), {})
                counts[notes.slot, notes.topic_id] = notes.lost
        return [status for status in found if status is not None]

    def _maps(self) -> dict[str, FlowMaps]:
        """Return the maps of every life of every topic, by source topic id.

        The current ones come from the reader that everybody asks; what it does not look for any
        more, maps of former ids, is put together from all the records there are.
        """
        topic = internal_topics.offset_map(self._lab.flow.source)
        state = self._lab.state()
        places = MapPlaces(lambda number: self._lab.target.compacted_topic(topic, number))
        records: dict[bytes, Placed] = {}
        for number in range(MAP_PARTITIONS):
            records |= places.records(number, lambda _key: True)
        targets = {found.topic_id for found in self._lab.target.topics().values()}
        found = {
            life.topic_id: assemble({topic.name: life.topic_id}, targets, state, records)
            for topic in self._topics
            for life in topic.lives[:-1]
        }
        reader = KafkaMapReader(self._lab.target, self._lab.source, self._lab.flow)
        return found | {t.life.topic_id: reader.load([t.name]) for t in self._topics}

    # ----- what is left

    def _keep(self, problems: list[str]) -> None:
        """Write down everything that explains a failure."""
        (self._home / "problems.txt").write_text("\n".join(problems) + "\n")
        try:
            state = self._lab.target.compacted_topic(
                internal_topics.replication(self._lab.flow.source)
            ).read()
            (self._home / "state.txt").write_text(
                "\n".join(f"{key!r}: {value!r}" for key, value in state.items())
            )
            for topic_id, flow_maps in self._maps().items():
                with (self._home / f"map-{topic_id}.txt").open("w") as out:
                    out.write(f"errors: {flow_maps.errors}\n")
                    for place, known in flow_maps.maps.items():
                        out.write(f"{place} {known.position}\n")
                        out.writelines(f"  {run}\n" for run in known.runs)
            self._keep_histories()
            if not self._targets:
                self._read_targets()
            for (remote, partition), log in self._targets.items():
                self._dump(f"{remote}-{partition}-target", log)
            for topic in self._topics:
                for number, life in enumerate(topic.lives):
                    for partition, records in life.records.items():
                        self._dump(f"{topic.name}-{partition}-source-{number}", records.items())
        except Exception:
            logger.exception("not everything could be kept")

    def _keep_histories(self) -> None:
        """Write down everything that was ever written to the state topics."""
        source = self._lab.flow.source
        for name, topic, count in (
            ("state", internal_topics.replication(source), STATE_PARTITIONS),
            ("map", internal_topics.offset_map(source), MAP_PARTITIONS),
        ):
            for number in range(count):
                self._dump(f"{name}-history-{number}", self._history(topic, number), None)

    def _history(self, topic: str, partition: int) -> Log:
        return read_log(self._pair.target_bootstrap, topic, partition)

    def _dump(
        self, name: str, records: Iterable[tuple[int, LoggedRecord]], size: int | None = 30
    ) -> None:
        with (self._home / f"{name}.txt").open("w") as out:
            for offset, record in records:
                value = None if record.value is None else record.value[:size]
                out.write(f"{offset} {record.timestamp} {record.key!r} {value!r}\n")

    def _tidy(self) -> None:
        """Delete the seed's topics, or the brokers' restarts become slower and slower."""
        for cluster, bootstrap in (
            (self._lab.source, self._pair.source_bootstrap),
            (self._lab.target, self._pair.target_bootstrap),
        ):
            try:
                names = [t for t in cluster.topics() if not t.startswith("__")]
                delete_topics(bootstrap, names)
            except Exception:
                logger.exception("topics of seed %s are left", self._plan.seed)
            cluster.close()


def run_seed(plan: Plan, brokers: Brokers, home: Path, *, keep: bool = False) -> Verdict:
    """Play a plan in a folder of its own, which stays only when it failed, or to ``keep`` it."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    (home / "plan.json").write_text(plan.text())
    log = logging.FileHandler(home / "campaign.log")
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(log)
    try:
        verdict = _play(plan, brokers, home)
    finally:
        root.removeHandler(log)
        log.close()
    (home / "verdict.json").write_text(json.dumps(asdict(verdict), indent=1))
    if not verdict.problems and not keep:
        shutil.rmtree(home)
    return verdict


def _play(plan: Plan, brokers: Brokers, home: Path) -> Verdict:
    """Play a plan, with other brokers once more where these cannot be started again."""
    pair = brokers.pair(plan.setting)
    try:
        return Run(plan, pair, home).play()
    except StackError:
        logger.exception("the brokers of seed %s are replaced", plan.seed)
        brokers.renew(pair)
        return Run(plan, brokers.pair(plan.setting), home).play()
