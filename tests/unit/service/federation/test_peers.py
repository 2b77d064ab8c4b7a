"""Services are found by what they announce, as long as they do, on the clusters that they watch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.seconds import Seconds
from tests.waiting import eventually

from srm.config.model import AccessSettings, RemoteSettings, ServiceSettings
from srm.domain.names.internal_topics import SERVICES
from srm.errors import ConfigError, IntegrityError
from srm.service.federation import peers
from srm.service.federation.peers import (
    BEAT_S,
    MISSED,
    Board,
    ServiceAnnouncement,
    own_announcement,
)
from srm.service.views.watching import end_all
from srm_lab.testing.fake_cluster import FakeCluster

OWN = ServiceAnnouncement("https", "srm.example.org", 6671, "/srm", ("B",), "1.0", "me", 5)
OTHER = replace(OWN, host="other.example.org", instance="other")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster("B")


@pytest.fixture
def ticks() -> Seconds:
    return Seconds()


def board(
    cluster: FakeCluster, ticks: Seconds, own: ServiceAnnouncement | None, instance: str
) -> Board:
    return Board(
        "B", own, instance, lambda _: nullcontext(cluster), clock=ticks, now=count().__next__
    )


@pytest.fixture
def mine(cluster: FakeCluster, ticks: Seconds) -> Board:
    return board(cluster, ticks, OWN, "me")


@pytest.fixture
def theirs(cluster: FakeCluster, ticks: Seconds) -> Board:
    return board(cluster, ticks, OTHER, "other")


def hosts(found: Board) -> list[str]:
    return [each.host for each in found.watchers()]


def test_services_find_each_other_and_not_themselves(
    cluster: FakeCluster, mine: Board, theirs: Board
) -> None:
    for each in (mine, theirs, mine):
        each.beat(cluster)

    assert hosts(mine) == ["other.example.org"]
    assert hosts(theirs) == ["srm.example.org"]


def test_one_that_falls_silent_is_forgotten_whatever_its_clock_says(
    cluster: FakeCluster, mine: Board, theirs: Board, ticks: Seconds
) -> None:
    theirs.beat(cluster)
    mine.beat(cluster)
    ticks.now += MISSED * BEAT_S
    mine.beat(cluster)
    assert hosts(mine) == ["other.example.org"]

    ticks.now += BEAT_S
    mine.beat(cluster)
    assert hosts(mine) == []

    theirs.beat(cluster)
    mine.beat(cluster)
    assert hosts(mine) == ["other.example.org"]


def test_the_one_heard_of_last_comes_first(
    cluster: FakeCluster, mine: Board, theirs: Board, ticks: Seconds
) -> None:
    third = board(cluster, ticks, replace(OWN, host="third", instance="third"), "third")
    for speaker in (third, theirs):
        speaker.beat(cluster)
        ticks.now += 1
        mine.beat(cluster)

    assert hosts(mine) == ["other.example.org", "third"]


def test_one_that_ends_in_good_order_is_forgotten_at_once(
    cluster: FakeCluster, mine: Board, theirs: Board
) -> None:
    for each in (theirs, mine):
        each.beat(cluster)

    theirs.leave(cluster)
    mine.beat(cluster)

    assert hosts(mine) == []


def test_a_cluster_speaks_for_itself_alone(
    cluster: FakeCluster, mine: Board, ticks: Seconds
) -> None:
    board(cluster, ticks, replace(OTHER, targets=("C",)), "other").beat(cluster)

    mine.beat(cluster)

    assert hosts(mine) == []


def test_what_is_no_announcement_is_skipped(
    cluster: FakeCluster, mine: Board, theirs: Board
) -> None:
    theirs.beat(cluster)
    evil = OTHER.value().replace(b'"/srm"', b'"/@evil.example/x?"')
    cluster.compacted_topic(SERVICES).write({b"a": b"{", b"b": b"[]", b"c": evil})

    mine.beat(cluster)

    assert hosts(mine) == ["other.example.org"]


def test_two_that_announce_the_same_address_are_told_of(
    cluster: FakeCluster, mine: Board, ticks: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    twin = board(cluster, ticks, replace(OWN, instance="twin"), "twin")
    for _ in range(MISSED):
        assert "set service.advertised.host" not in caplog.text
        mine.beat(cluster)
        twin._read(cluster)

    assert "set service.advertised.host" in caplog.text
    assert hosts(twin) == []


def test_a_cluster_that_is_away_is_told_and_comes_back(
    cluster: FakeCluster, mine: Board, theirs: Board
) -> None:
    theirs.beat(cluster)
    cluster.fail()
    mine.beat(cluster)
    assert "B" in mine.error

    cluster.recover()
    mine.beat(cluster)
    assert (mine.error, hosts(mine)) == ("", ["other.example.org"])


def test_of_one_that_fell_silent_it_is_known_since_when(
    cluster: FakeCluster, mine: Board, theirs: Board, ticks: Seconds
) -> None:
    assert mine.silence() == ""
    theirs.beat(cluster)
    mine.beat(cluster)

    ticks.now += MISSED * BEAT_S + 1

    assert mine.silence() == f"{OTHER.url} last announced itself 21 s ago"


def test_a_board_announces_by_itself_and_takes_it_back(cluster: FakeCluster, mine: Board) -> None:
    def announced() -> bool:
        rows = cluster.compacted_topic(SERVICES).read()
        return OWN.key() in rows

    mine.start()
    mine.start()
    eventually(lambda: SERVICES in cluster.topics() and announced(), "an announcement")
    end_all([mine])

    assert not announced()


@given(st.text(max_size=40), st.text(max_size=40), st.integers(-1, 70_000))
def test_an_address_leads_nowhere_but_to_the_routes_of_a_host(
    host: str, root_path: str, port: int
) -> None:
    try:
        made = replace(OWN, host=host, root_path=root_path, port=port)
    except IntegrityError:
        return
    assert made.url.startswith(f"https://{host}:{port}") or f"[{host}]:{port}" in made.url
    assert not set("?#@\\ \n%") & set(made.url)
    assert "/." not in made.url


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (ServiceSettings(host="10.0.0.1"), "http://10.0.0.1:6670"),
        (ServiceSettings(host="::1", root_path="/srm/"), "http://[::1]:6670/srm"),
        (
            ServiceSettings(
                host="0.0.0.0",  # noqa: S104 -- nothing listens
                remote=RemoteSettings(protocol="https", host="srm", port=443, root_path=""),
                root_path="/inside",
            ),
            "https://srm:443",
        ),
    ],
)
def test_a_service_announces_where_it_listens_unless_told_otherwise(
    settings: ServiceSettings, url: str
) -> None:
    assert own_announcement(settings, ("B",), "me").url == url


def test_a_service_with_a_certificate_announces_https() -> None:
    settings = ServiceSettings(access=AccessSettings(certificate_location=__file__))  # type: ignore[arg-type]

    assert own_announcement(settings, (), "me").protocol == "https"


def test_what_cannot_be_announced_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"service\.advertised\.port"):
        own_announcement(ServiceSettings(port=0), (), "me")
    with pytest.raises(ConfigError, match="invalid host"):
        own_announcement(ServiceSettings(remote=RemoteSettings(host="a/b")), (), "me")


def test_a_cluster_that_cannot_be_opened_is_tried_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that ended would fall silent for good, and nobody would be told why."""
    monkeypatch.setattr(peers, "BEAT_S", 0.0)
    failing = [TypeError("nobody has expected this")]

    def opener(_: str) -> AbstractContextManager[FakeCluster]:
        if failing:
            raise failing[0]
        return nullcontext(cluster)

    found = Board("B", OWN, "me", opener)
    found.start()
    eventually(lambda: bool(found.error), "the state of the board")
    failing.clear()
    eventually(lambda: bool(cluster.compacted_topic(SERVICES).read()), "the state of the board")
    eventually(lambda: not found.error, "the state of the board")
    end_all([found])
