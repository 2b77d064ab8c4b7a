"""Plays one seed from start to verdict, and keeps what it leaves when the verdict is bad."""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.faults.campaign import checker
from tests.faults.campaign.brokers import Brokers, Pair, delete_topics
from tests.faults.campaign.director import STRANGER, Director
from tests.faults.campaign.history import Life, TopicHistory
from tests.faults.campaign.plan import Plan
from tests.faults.campaign.slots import Slots
from tests.faults.campaign.workload import Workload
from tests.integration.copying import CopyLab

from srm.domain import internal_topics
from srm.domain.partition_notes import KEY_PREFIX, PartitionNotes, with_notes
from srm.domain.replication_records import AssignedPartition, CopyId, PartitionStatus
from srm.domain.topics import TopicPartition
from srm.engine.map_assembly import assemble
from srm.engine.ports import FlowMaps, TopicSpec
from srm.errors import SrmError
from srm.testing.logs import Log, LoggedRecord, read_log, read_logs

logger = logging.getLogger(__name__)

CONVERGENCE_S: Final = 75.0
HOPELESS_S: Final = 12.0
HANGING_S: Final = 20.0
"""After which a transaction is left open, and read up to: Kafka has bugs that leave one hanging."""
_STRAYS: Final = re.compile(r"foreign records at target offsets 0 to (\d+)")
_NUDGE_S: Final = 5.0
_TRUNCATION_S: Final = 12.0
"""Positions of before a truncation look as if all were copied: until every slot has been back."""


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
            f"{self.foreign} foreign, {self.seconds:.1f} s (convergence "
            f"{self.convergence_seconds:.1f} s), {self.setting}/{self.policy}: {told}"
            + "".join(f"\n    {problem}" for problem in self.problems)
        )


class Run:
    """One seed."""

    def __init__(self, plan: Plan, pair: Pair, home: Path) -> None:
        self._plan = plan
        self._pair = pair
        self._home = home
        self._lab = CopyLab(
            pair.source.bootstrap,
            pair.target_bootstrap,
            target_replicas=pair.replicas,
            data_loss_policy=plan.policy,
        )
        self._topics: list[TopicHistory] = []
        self._numbers: Counter[str] = Counter()
        self._targets: dict[tuple[str, int], Log] = {}

    def play(self) -> Verdict:
        """Play the plan and check what it has left."""
        began = time.monotonic()
        convergence = 0.0
        problems: list[str] = []
        slots = Slots(self._lab, self._plan.slots, self._home)
        try:
            self._create_topics()
            workload = Workload(
                self._plan, self._pair.source.bootstrap, [t.name for t in self._topics]
            )
            slots.spread(p for t in self._topics for p in t.partitions)
            slots.publish()
            slots.start_all()
            workload.start()
            Director(self._plan, self._pair, self._lab, self._topics, slots, workload).play()
            logger.info("all steps are done")
            workload.end()
            logger.info("the writers have ended")
            convergence, problems = self._converge(slots)
            logger.info("convergence took %.1f s", convergence)
            if not problems:
                problems = self._check(workload)
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
        for topic in self._plan.topics:
            name = f"T{uuid.uuid4().hex[:8]}"
            self._lab.source.create_topics(
                [TopicSpec(name, topic.partitions, 1, dict(topic.source))]
            )
            partitions = list(self._lab.remote(name, dict(topic.target)))
            history = TopicHistory(
                name, partitions[0].target_topic, partitions, topic.compacted, dict(topic.target)
            )
            history.begin_life(partitions, same_target=True)
            self._topics.append(history)

    # ----- convergence

    def _converge(self, slots: Slots) -> tuple[float, list[str]]:
        """Wait until every partition is copied, or has stopped for a loss it was told to stop for.

        A slot that waits for a newer assignment gets one every few seconds, as from the driver.
        """
        began = nudged = time.monotonic()
        while True:
            now = time.monotonic()
            try:
                waiting = self._unsettled(now - began)
            except (SrmError, KafkaException) as error:
                waiting = [str(error)]
            if not waiting:
                return now - began, []
            hopeless = all("undecidable" in text for text in waiting)
            if now - began > (HOPELESS_S if hopeless else CONVERGENCE_S):
                return now - began, [f"not copied in time: {text}" for text in waiting]
            if now - nudged > _NUDGE_S:
                slots.publish()
                nudged = now
            time.sleep(0.3)  # between two looks

    def _unsettled(self, seconds: float) -> list[str]:
        """Describe the partitions that are not where they should end."""
        partitions = [p for topic in self._topics for p in topic.partitions]
        places = [TopicPartition(p.topic, p.partition) for p in partitions]
        stable, ends = self._lab.source.log_ends(places), self._high_watermarks(places)
        reached = self._reached()
        found = []
        for topic in self._topics:
            for p in topic.partitions:
                place = TopicPartition(p.topic, p.partition)
                end = ends[place]
                position = reached.get(p.copy_id, -1)
                if stable[place] < end and seconds > HANGING_S:
                    end = stable[place]  # the source's own brokers do not end it
                if stable[place] < end:
                    found.append(f"{place}: a transaction is open at {stable[place]} of {end}")
                elif p.partition in topic.life.truncated and seconds < _TRUNCATION_S:
                    found.append(f"{place}: was truncated, which is yet to be noticed")
                elif position < end and not self._has_stopped_for_loss(topic.life, p):
                    status = self._lab.status(p)
                    told = f"{status.state} {status.reason}" if status else "no status"
                    found.append(f"{place}: at {position} of {end}, {told}")
        return found

    def _reached(self) -> dict[CopyId, int]:
        reached: dict[CopyId, int] = {}
        for report in self._lab.reports():
            for entry in report.positions:
                known = reached.get(entry.copy_id, -1)
                reached[entry.copy_id] = max(known, entry.position.source_next)
        return reached

    def _high_watermarks(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = {KafkaPartition(p.topic, p.partition): OffsetSpec.latest() for p in places}
        # A new client each time: one that is kept remembers the leaders of before a restart.
        admin = AdminClient({"bootstrap.servers": self._pair.source.bootstrap, "log_level": 0})
        answers = admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=10
        )
        return {
            TopicPartition(place.topic, place.partition): answer.result().offset
            for place, answer in answers.items()
        }

    def _has_stopped_for_loss(self, life: Life, partition: AssignedPartition) -> bool:
        status = self._lab.status(partition)
        return status is not None and _stopped_for_loss(life, status)

    # ----- the check

    def _check(self, workload: Workload) -> list[str]:
        statuses = self._status_history()
        maps = self._maps()
        problems = []
        self._read_targets()
        for topic in self._topics:
            if not topic.compacted:
                topic.snapshot(self._pair.source.bootstrap)
            ids = workload.sent(topic.name)
            for p in topic.partitions:
                place = TopicPartition(p.topic, p.partition)
                target = self._targets[topic.remote, p.partition]
                if topic.compacted:
                    source = read_log(self._pair.source.bootstrap, topic.name, p.partition)
                    self._numbers["records"] += len(target)
                    problems += checker.check_compacted(
                        str(place),
                        dict(source),
                        target,
                        {offset: name for (n, offset), name in ids.items() if n == p.partition},
                        maps[topic.life.topic_id].maps.get(place),
                        STRANGER,
                        some_gone=checker.told_gone(
                            s for s in statuses if (s.topic, s.partition) == (p.topic, p.partition)
                        ),
                    )
                else:
                    problems += self._check_partition(topic, p, target, statuses, maps)
        return problems

    def _read_targets(self) -> None:
        self._targets = read_logs(
            self._pair.target_bootstrap,
            [(t.remote, p.partition) for t in self._topics for p in t.partitions],
        )

    def _check_partition(
        self,
        topic: TopicHistory,
        partition: AssignedPartition,
        target: Log,
        statuses: Sequence[PartitionStatus],
        maps: dict[str, FlowMaps],
    ) -> list[str]:
        place = TopicPartition(partition.topic, partition.partition)
        told = [s for s in statuses if TopicPartition(s.topic, s.partition) == place]
        # It tries again once in a while, and then its state is another for a moment.
        stopped = any(_stopped_for_loss(topic.life, status) for status in told)
        ends = [int(end) for status in told for end in _STRAYS.findall(status.reason)]
        found = checker.match(
            topic,
            partition.partition,
            target,
            STRANGER,
            stopped=stopped,
            strays=max(ends, default=0),
        )
        self._numbers["records"] += sum(len(pairs) for pairs in found.pairs)
        self._numbers["foreign"] += len(found.foreign)
        self._numbers["lost"] += sum(b - a for lost in found.lost for a, b in lost)
        if found.problems:
            return found.problems
        problems = []
        undecidable = stopped and any("undecidable" in status.reason for status in told)
        for life, pairs in zip(topic.lives, found.pairs, strict=True):
            known = maps[life.topic_id].maps.get(place)
            if life is topic.life and not undecidable:
                stood = pairs if found.stood is None else found.stood
                if checker.told_gone(told):
                    deleted = life.deleted.get(partition.partition, 0)
                    stood = checker.without_gone(stood, known, deleted)
                problems += checker.check_map(str(place), known, stood)
                problems += [f"map unusable: {e}" for e in maps[life.topic_id].errors.values()]
            elif partition.partition not in life.truncated:
                problems += checker.check_former_map(str(place), known, pairs)
        cut, _ = topic.life.truncated.get(partition.partition, (None, {}))
        if undecidable:
            return problems
        deleted = topic.life.deleted.get(partition.partition, 0)
        problems += checker.check_losses(
            str(place), found.lost[-1], found.pairs[-1], told, cut, deleted
        )
        copied = max((offset for pairs in found.pairs for _, offset in pairs), default=-1)
        seen = [offset for offset in found.foreign if offset < copied]  # later ones nobody has met
        if seen and not any("foreign" in status.reason for status in told):
            problems.append(f"{place}: foreign records at {seen[:3]} are not reported")
        return problems

    def _status_history(self) -> list[PartitionStatus]:
        """Return every status that was ever written, and as one each note."""
        topic = internal_topics.replication(self._lab.flow.source)
        found: list[PartitionStatus | None] = []
        for _, record in read_log(self._pair.target_bootstrap, topic, 0):
            if record.key is None or record.value is None:
                continue
            if record.key.startswith(b"status:"):
                found.append(PartitionStatus.decode(record.value))
            elif record.key.startswith(KEY_PREFIX):
                found.append(with_notes(None, [PartitionNotes.decode(record.value)]))
        return [status for status in found if status is not None]

    def _maps(self) -> dict[str, FlowMaps]:
        """Assemble the maps of every life of every topic, by source topic id."""
        source = self._lab.flow.source
        state = self._lab.state()
        blocks: dict[bytes, bytes] = {}
        for number in range(8):
            blocks.update(
                self._lab.target.compacted(internal_topics.offset_map(source), number).read()
            )
        targets = {found.topic_id for found in self._lab.target.topics().values()}
        return {
            life.topic_id: assemble({topic.name: life.topic_id}, targets, state, blocks)
            for topic in self._topics
            for life in topic.lives
        }

    # ----- what is left

    def _keep(self, problems: list[str]) -> None:
        """Write down everything that explains a failure."""
        (self._home / "problems.txt").write_text("\n".join(problems) + "\n")
        try:
            state = self._lab.target.compacted(
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
            source = self._lab.flow.source
            self._dump("state-history", self._history(internal_topics.replication(source), 0), None)
            for number in range(8):
                history = self._history(internal_topics.offset_map(source), number)
                self._dump(f"map-history-{number}", history, None)
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
            (self._lab.source, self._pair.source.bootstrap),
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
        verdict = Run(plan, brokers.pair(plan.setting), home).play()
    finally:
        root.removeHandler(log)
        log.close()
    (home / "verdict.json").write_text(json.dumps(asdict(verdict), indent=1))
    if not verdict.problems and not keep:
        shutil.rmtree(home)
    return verdict


def _stopped_for_loss(life: Life, status: PartitionStatus) -> bool:
    number = status.partition
    if status.state != "stopped" or (number not in life.deleted and number not in life.truncated):
        return False
    # What was copied in the second before a crash, and truncated before the next owner came.
    undecidable = number in life.truncated and "undecidable" in status.reason
    return status.lost_from is not None or undecidable
