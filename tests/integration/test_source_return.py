"""A dead source returns: what only it has is found, decided about, and the flow goes on exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.conftest import BrokerFactory
from tests.faults.campaign.truncation import cut
from tests.integration.copying import delete_before
from tests.integration.moving import begin, pass_gate
from tests.integration.returning import Pair, pause
from tests.waiting import eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.domain.moves.disaster import Outcome
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.translate import translate
from srm.engine.moves.context import MoveContext
from srm.engine.moves.tables import MoveRecords
from srm.engine.recovery import ReturnedFlow, pause_in_force
from srm.errors import GateClosedError
from srm.wiring import open_move, open_return
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

FIRST = [f"before-{n}" for n in range(50)]
REST = [f"residue-{n}" for n in range(20)]
LATER = [f"later-{n}" for n in range(7)]


def test_merged_kept_and_discarded_residue_leaves_flows_and_groups_exact(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    source = broker_factory("P")
    pair = Pair(source, clusters["B"], tmp_path, ["Merged", "Kept", "Discarded", "Gone"])
    merged, kept, discarded, gone = pair.topics
    reader, stranger = f"reader-{pair.unique}", f"stranger-{pair.unique}"
    with pair.replicating(), open_return(pair.config, pair.flow) as (context, logs):
        for topic in pair.topics:
            pair.produce(pair.p, topic, FIRST)
        pair.wait_until_copied(pair.topics)
        pause(context)
        for topic in pair.topics:
            pair.produce(pair.p, topic, REST[:5])
            pair.abort(pair.p, topic)
            pair.produce(pair.p, topic, REST[5:])
        residue = range(50, 74)  # three aborted records and their marker have offsets as well
        moved = pair.topics[:3]
        pair.commit(pair.p, reader, dict.fromkeys(moved, 61))
        ends = {t: pair.map(t).forward(50).offset for t in moved}
        source.kill()
        for alias, group in ((pair.b, reader), (pair.b, stranger)):
            pair.commit(alias, group, {pair.remote(t): end for t, end in ends.items()})
        source.start()
        source.wait_ready()
        # A broker that has just started lists no group before it has read their commits.
        eventually(lambda: reader in context.source.groups(), "the group is back on the source")

        found = json.loads(srm(pair, "return", "status", "--json"))
        assert found["shape"] == "same"
        topics = [topic for topic in found["topics"] if topic["topic"] in pair.topics]
        entries = [entry for topic in topics for entry in topic["partitions"]]
        assert [(entry["copied_to"], entry["log_end"], entry["records"]) for entry in entries] == [
            (50, 74, 20)
        ] * 4
        assert list(found["groups"]) == [reader]
        assert set(found["groups"][reader]["already_read"].values()) == {7}, (
            "of the eleven offsets before 61"
        )
        assert all(pair.copied_to(topic) == 50 for topic in pair.topics), "nothing was copied"
        assert len(srm(pair, "residue", "list", "--topic", kept).splitlines()) == 2
        lines = srm(pair, "residue", "show", "--topic", kept, "--json", "--limit", "9").splitlines()
        assert [json.loads(line)["value"] for line in lines] == REST[:9]
        out = str(tmp_path / "out")
        srm(pair, "residue", "export", "--topic", kept, "--format", "parquet", "--output", out)
        table = pq.read_table(tmp_path / "out" / f"{kept}-0.parquet").to_pylist()
        assert [row["value"].decode() for row in table] == REST

        with pytest.raises(GateClosedError, match=f"{kept} is undecided"):
            ReturnedFlow(context, logs).settle({merged: "merge"}, None, "ann")
        assert pause_in_force(context) is not None
        choices = {merged: "merge", kept: "keep", discarded: "discard", gone: "merge"}
        delete_before(source.bootstrap, gone, 62)  # retention, before anybody could copy them
        options = [f"--{choice}={topic}" for topic, choice in choices.items()]
        shown = srm(pair, "return", "settle", *options, "--dry-run")
        assert "Nothing was written" in shown
        assert pause_in_force(context) is not None
        assert "Settled" in srm(pair, "return", "settle", *options, "--yes")
        assert "there is nothing to settle" in srm(pair, "return", "settle", *options, "--yes")
        pair.wait_until_copied(pair.topics)
        assert pair.values(pair.b, pair.remote(merged)) == FIRST + REST
        assert pair.values(pair.b, pair.remote(kept)) == FIRST
        # Groups fail back before anybody writes to P again: it is the planned move.
        pair.commit(pair.b, reader, {pair.remote(merged): pair.map(merged).forward(74).offset})
        with open_move(pair.config, pair.b, pair.p) as back:
            moves = MoveRecords.read(back.target)
            outcome = Outcome.decode(moves.document("outcome:m1") or b"")
            assert outcome.choices.items() >= choices.items()
            assert outcome.groups[reader].records == 21
            fail_back(back, pair, reader, stranger)
        commits = {g: pair.clusters[pair.p].committed_offsets(g) for g in (reader, stranger)}
        place = [TopicPartition(t, 0) for t in (merged, kept, discarded)]
        assert [commits[reader][p] for p in place] == [74, 61, 74]
        assert [commits[stranger][p] for p in place] == [50, 50, 74]
        behind = {t: translate(context, TopicPartition(t, 0), 50) for t in (kept, discarded)}
        assert "24 offsets never copied" in behind[kept].reason
        assert behind[discarded].reason == ""

        for topic in pair.topics:
            pair.produce(pair.p, topic, LATER)
        pair.wait_until_copied(pair.topics)
    with pair.replicating(pair.flow):  # and a slot that starts later knows of it, too
        for topic in pair.topics:
            pair.produce(pair.p, topic, LATER)
        pair.wait_until_copied(pair.topics)
    assert pair.values(pair.b, pair.remote(merged)) == FIRST + REST + LATER + LATER
    assert pair.values(pair.b, pair.remote(kept)) == FIRST + LATER + LATER
    assert pair.values(pair.b, pair.remote(discarded)) == FIRST + LATER + LATER
    assert pair.values(pair.b, pair.remote(gone)) == FIRST + REST[8:] + LATER + LATER
    pair.assert_mapped(merged)
    pair.assert_mapped(kept, residue)
    pair.assert_mapped(discarded, residue)
    pair.close()


def srm(pair: Pair, *arguments: str) -> str:
    """Run a command of srm, and return what it prints."""
    command, *rest = arguments
    done = CliRunner().invoke(
        app, [command, *rest[:1], "-c", str(pair.path), "-f", str(pair.flow), *rest[1:]]
    )
    assert done.exit_code == 0, done.exception
    return done.stdout


def fail_back(back: MoveContext, pair: Pair, *groups: str) -> None:
    topics = tuple(pair.topics[:3])
    request = MoveRequest("failback", pair.b, pair.p, topics, groups, quiet_seconds=0.2)
    begin(back, request, "m2")
    pass_gate(back, "m2")


def test_a_source_that_lost_what_was_copied_does_not_stop_the_flow(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    source = broker_factory("P")
    pair = Pair(source, clusters["B"], tmp_path, ["Merged", "Kept", "Rebuilt"])
    merged, kept, rebuilt = pair.topics
    with pair.replicating(pair.flow), open_return(pair.config, pair.flow) as (context, logs):
        for part in range(5):
            for topic in pair.topics:
                pair.produce(pair.p, topic, FIRST[part * 10 : part * 10 + 10])
            pair.wait_until_copied(pair.topics)
        pause(context)
        ends = {topic: cut(source, topic, 0, share=0.5) for topic in (merged, kept)}
        source.start()
        source.wait_ready()
        pair.create_again(pair.p, rebuilt)
        for topic in pair.topics:
            pair.produce(pair.p, topic, REST)

        found = ReturnedFlow(context, logs).inspect()

        shapes = {topic.topic: topic.shape for topic in found.topics}
        assert (found.shape, shapes[merged], shapes[rebuilt]) == ("rebuilt", "shorter", "rebuilt")
        for entry in found.partitions:
            if (end := ends.get(entry.topic)) is not None:
                assert 0 < end < 50
                assert (entry.cut_from, entry.cut_to, entry.copied_to) == (end, 50, end)
                assert (entry.records, entry.only_copied) == (20, 50 - end)
        with pytest.raises(GateClosedError, match="srm restore"):
            ReturnedFlow(context, logs).settle({kept: "keep"}, "merge", "ann")
        ReturnedFlow(context, logs).settle({kept: "keep", rebuilt: "merge"}, "merge", "ann")

        for topic in pair.topics:
            pair.produce(pair.p, topic, LATER)
        everything = FIRST + REST + LATER
        copied = {merged: everything, kept: FIRST + LATER, rebuilt: everything}
        for topic, copies in copied.items():
            eventually(
                lambda: pair.values(pair.b, pair.remote(topic)) == copies,  # noqa: B023
                "the flow has gone on",
            )
        pair.wait_until_copied(pair.topics)
    for topic, new in {merged: REST + LATER, kept: LATER}.items():
        end = ends[topic]
        assert end is not None
        copied, log = dict(pair.log(pair.b, pair.remote(topic))), dict(pair.log(pair.p, topic))
        mapped = {
            run.source_start + i: run.target_start + i
            for run in pair.map(topic).runs
            for i in range(run.count)
        }
        assert all(copied[mapped[at]] == log[at] for at in mapped)
        assert [log[at].value for at in mapped] == [v.encode() for v in FIRST[:end] + new]
        assert copied[pair.map(topic).forward(end).offset].value == new[0].encode()
    pair.close()
