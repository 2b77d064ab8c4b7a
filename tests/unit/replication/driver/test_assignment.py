from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.replication.driver.assignment import assign, rebalance, relative_weights

SLOTS = st.lists(st.integers(0, 12).map(str), min_size=1, max_size=8, unique=True)


def topic(name: str, partitions: int) -> list[AssignedPartition]:
    return [AssignedPartition(name, n, f"id-{name}", f"P.{name}", "t") for n in range(partitions)]


@st.composite
def fleets(draw: st.DrawFn) -> list[AssignedPartition]:
    sizes = draw(st.lists(st.integers(1, 9), max_size=6))
    return [p for index, size in enumerate(sizes) for p in topic(f"t{index}", size)]


@st.composite
def weighted(draw: st.DrawFn) -> tuple[list[AssignedPartition], dict[AssignedPartition, float]]:
    partitions = draw(fleets())
    rates = {p: draw(st.floats(0, 1e9)) for p in partitions if draw(st.booleans())}
    return partitions, relative_weights(rates)


def loads(assigned, weights):
    return [sum(weights.get(p, 1.0) for p in held) for held in assigned.values()]


def owner_of(assigned):
    return {p: slot for slot, held in assigned.items() for p in held}


@given(weighted(), SLOTS, SLOTS)
def test_every_partition_has_exactly_one_live_slot_whatever_was_before(fleet, before, slots):
    partitions, weights = fleet
    current = {slot: partitions[index :: len(before)] for index, slot in enumerate(before)}
    current[before[0]] = list(partitions)  # contradicting: everything twice

    assigned = assign(partitions, slots, current, weights)

    assert set(assigned) == set(slots)
    assert Counter(p for held in assigned.values() for p in held) == Counter(partitions)


@given(weighted(), SLOTS)
def test_from_scratch_no_two_slots_differ_by_more_than_one_partition(fleet, slots):
    partitions, weights = fleet

    assigned = assign(partitions, slots, {}, weights)

    totals = loads(assigned, weights)
    heaviest = max((weights.get(p, 1.0) for p in partitions), default=0.0)
    assert max(totals) - min(totals) <= heaviest + 1e-6


@given(weighted(), SLOTS, st.integers(1, 20), st.booleans())
def test_a_new_topic_moves_nothing(fleet, slots, size, drifted):
    partitions, weights = fleet
    before = assign(partitions, slots, {}, weights)
    grown = [*partitions, *topic("new", size)]

    after = assign(grown, slots, before, {} if drifted else weights)

    assert {p: s for p, s in owner_of(after).items() if p.topic != "new"} == owner_of(before)


@given(weighted(), SLOTS)
def test_a_lost_slot_moves_only_its_own_partitions(fleet, slots):
    partitions, weights = fleet
    before = owner_of(assign(partitions, [*slots, "lost"], {}, weights))
    current = assign(partitions, [*slots, "lost"], {}, weights)

    after = owner_of(assign(partitions, slots, current, weights))

    # a slot that had nothing before may take over from the heaviest
    idle = [slot for slot in slots if not current[slot]]
    moved = {p for p in partitions if after[p] != before[p] and before[p] != "lost"}
    assert not moved or idle
    assert all(after[p] in idle for p in moved)


@given(weighted(), SLOTS)
def test_a_slot_that_joins_takes_its_share_and_nothing_else_moves(fleet, slots):
    partitions, weights = fleet
    before = assign(partitions, slots, {}, weights)

    after = assign(partitions, [*slots, "joins"], before, weights)

    previous = owner_of(before)
    moved = [p for p, slot in owner_of(after).items() if previous[p] != slot]
    newcomers = {"joins", *(slot for slot, held in before.items() if not held)}
    assert all(owner_of(after)[p] in newcomers for p in moved)
    if any(len(held) > 1 for held in after.values()):
        assert after["joins"]
    totals = loads(after, weights)
    assert max(totals) <= max(loads(before, weights)) + 1e-6


@given(weighted(), SLOTS, st.randoms())
def test_the_same_input_in_any_order_gives_the_same_assignment(fleet, slots, random):
    partitions, weights = fleet
    shuffled, others = list(partitions), list(slots)
    random.shuffle(shuffled)
    random.shuffle(others)

    assert assign(shuffled, others, {}, weights) == assign(partitions, slots, {}, weights)


@given(weighted(), SLOTS)
def test_an_assignment_is_a_fixed_point(fleet, slots):
    partitions, weights = fleet
    once = assign(partitions, slots, {}, weights)

    assert assign(partitions, slots, once, weights) == once


def test_without_live_slots_nothing_is_assigned():
    assert assign(topic("t", 3), [], {"0": topic("t", 3)}) == {}


def test_a_topic_created_again_is_another_partition_and_the_old_one_is_dropped():
    old = topic("t", 2)
    new = [AssignedPartition("t", n, "other-id", "P.t", "t") for n in range(2)]

    assigned = assign(new, ["0"], {"0": old})

    assert assigned == {"0": tuple(new)}


def test_idle_and_busy_partitions_spread_by_byte_rate():
    """Four busy partitions land on four slots although idle ones come first by name."""
    idle, busy = topic("a", 40), topic("z", 4)
    weights = relative_weights({**dict.fromkeys(idle, 0.0), **dict.fromkeys(busy, 1e7)})

    assigned = assign([*idle, *busy], ["0", "1", "2", "3"], {}, weights)

    assert [sum(p.topic == "z" for p in held) for held in assigned.values()] == [1, 1, 1, 1]


def test_partitions_without_a_rate_count_like_average_ones():
    known = topic("known", 4)
    weights = relative_weights(dict.fromkeys(known, 5e6))
    before = assign(known, ["0", "1"], {}, weights)

    after = assign([*known, *topic("new", 20)], ["0", "1"], before, weights)

    assert [len(held) for held in after.values()] == [12, 12]


def test_rebalance_leaves_what_is_within_tolerance():
    held = {"0": tuple(topic("a", 3)), "1": tuple(topic("b", 2))}

    assert rebalance(held, {}, tolerance=1.5, max_moves=9) == held


def test_rebalance_moves_no_more_than_allowed_and_only_from_the_heaviest():
    held = {"0": tuple(topic("a", 30)), "1": tuple(topic("b", 2))}

    after = rebalance(held, {}, tolerance=1.5, max_moves=3)

    assert [len(partitions) for partitions in after.values()] == [27, 5]
    assert set(held["1"]) <= set(after["1"])


def test_rebalance_does_not_shuffle_one_partition_that_is_too_heavy_for_any_slot():
    heavy = topic("a", 1)
    held = {"0": tuple(heavy), "1": tuple(topic("b", 1))}

    assert rebalance(held, {heavy[0]: 50.0}, tolerance=1.5, max_moves=9) == held
