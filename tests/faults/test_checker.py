"""The campaign's checker: what it lets pass, and what it does not."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults.campaign.checker import check_partition, covers
from tests.faults.campaign.history import Life, Refusals, TopicHistory

from srm.domain.flow_state.replication_records import PartitionStatus
from srm.domain.names.record_headers import RecordSettings
from srm.domain.offset_map.offset_map import OffsetMap, Run
from srm_lab.testing.logs import Log, LoggedRecord


def record(number: int | str, key: bytes | None = None) -> LoggedRecord:
    return LoggedRecord(key, str(number).encode(), (), (1, 5))


def history(*lives: Life, **facts: object) -> TopicHistory:
    return TopicHistory("T", "P.T", [], False, {}, list(lives), **facts)  # type: ignore[arg-type]


def life(records: dict[int, LoggedRecord], **facts: object) -> Life:
    made = Life("id", "target id", **facts)  # type: ignore[arg-type]
    made.take(0, records.items())
    return made


def numbered(first: int, end: int, name: str = "") -> dict[int, LoggedRecord]:
    return {at: record(f"{name}{at}") for at in range(first, end)}


def log(records: Sequence[LoggedRecord], first: int = 0) -> Log:
    return list(enumerate(records, first))


def mapped(*runs: Run) -> OffsetMap:
    return OffsetMap.of(runs)


def lost(first: int, end: int, state: str = "copying") -> PartitionStatus:
    return PartitionStatus("T", 0, state, "gone", first, end)  # type: ignore[arg-type]


def problems(
    of: TopicHistory,
    target: Log,
    *maps: OffsetMap | None,
    told: Sequence[PartitionStatus] = (),
    counted: int = 0,
    policy: str = "continue",
) -> list[str]:
    return check_partition(
        of, 0, target, b"stranger", maps, told, counted=counted, policy=policy
    ).problems


def test_equal_copies_with_their_map_are_right() -> None:
    for records in (numbered(0, 9), dict.fromkeys(range(9), record("same"))):
        target = log(list(records.values()), 3)

        assert problems(history(life(records)), target, mapped(Run(0, 3, 9))) == []


def test_records_of_aborted_transactions_may_be_copied_and_need_not_be() -> None:
    """Where a broker gives them as committed, whoever reads it has them."""
    records = numbered(0, 5)
    aborted = life(records, aborted={0: {1, 2}})
    without = log([records[0], records[3], records[4]])

    assert problems(history(aborted), log(list(records.values())), mapped(Run(0, 0, 5))) == []
    assert problems(history(aborted), without, mapped(Run(0, 0, 1), Run(3, 1, 2))) == []
    [found] = problems(history(life(records)), without, mapped(Run(0, 0, 1), Run(3, 1, 2)))

    assert "2 records are missing" in found


def test_a_jump_among_equal_records_is_a_loss() -> None:
    records = dict.fromkeys(range(9), record("same"))
    target = log([record("same")] * 6)

    [found] = problems(history(life(records)), target, mapped(Run(0, 0, 5), Run(8, 5, 1)))

    assert "3 records are missing" in found


def test_a_record_that_stands_twice_is_in_no_map() -> None:
    target = log([record(0), record(1), record(1), record(2)])

    [found] = problems(history(life(numbered(0, 3))), target, mapped(Run(0, 0, 2), Run(2, 3, 1)))

    assert "nothing explains" in found
    assert "at target offset 1" in found


def test_a_map_that_names_a_marker_is_wrong() -> None:
    target = [(0, record(0)), (1, record(1)), (4, record(2))]
    of = history(life(numbered(0, 3)))

    assert any("no record is" in text for text in problems(of, target, mapped(Run(0, 0, 3))))


def test_a_map_that_says_too_little_is_wrong() -> None:
    target = log(list(numbered(0, 5).values()))

    assert problems(history(life(numbered(0, 5))), target, mapped(Run(0, 0, 3)))
    assert problems(history(life(numbered(0, 5))), target, None)


def test_what_was_deleted_before_it_was_copied_may_be_missing_and_has_to_be_told() -> None:
    of = history(life(numbered(0, 9), deleted={0: 6}))
    target = log([record(n) for n in (0, 1, 6, 7, 8)])
    known = mapped(Run(0, 0, 2), Run(6, 2, 3))

    assert problems(of, target, known, told=[lost(2, 6)]) == []
    assert problems(of, target, known, told=[lost(2, 4), lost(4, 6)]) == []
    assert problems(of, target, known, told=[lost(2, 5)])
    assert problems(of, target, known)
    assert problems(of, target, known, told=[lost(1, 6)]), "record 1 is copied"


def test_a_tail_may_be_missing_behind_a_loss_that_the_policy_stops_for_and_nowhere_else() -> None:
    of = history(life(numbered(0, 9), deleted={0: 4}))
    told = [lost(2, 4, "stopped")]

    assert problems(of, log([record(0), record(1)]), mapped(Run(0, 0, 2)), told=told) != []
    stopped = log([record(0), record(1)]), mapped(Run(0, 0, 2))
    assert problems(of, *stopped, told=told, policy="stop") == []
    intact = history(life(numbered(0, 9)))
    assert problems(intact, *stopped, told=told, policy="stop"), "nothing was lost"
    late = history(life(numbered(0, 9), deleted={0: 4}))
    copied = log([record(n) for n in (0, 1, 4, 5)])
    known = mapped(Run(0, 0, 2), Run(4, 2, 2))
    assert problems(late, copied, known, told=told, policy="stop"), "copied behind the loss"


def test_a_partition_may_stop_at_deleted_offsets_that_held_no_record_and_has_to_say_so() -> None:
    """Of aborted transactions, deleted behind an open one: nobody can know what they held."""
    of = history(life({0: record(0), 1: record(1), 6: record(6), 7: record(7)}, deleted={0: 5}))
    stopped = log([record(0), record(1)]), mapped(Run(0, 0, 2))
    told = [lost(3, 5, "stopped")]

    assert problems(of, *stopped, told=told, policy="stop") == []
    [silent] = problems(of, *stopped, policy="stop")
    assert "not told" in silent
    assert problems(of, *stopped, told=told), "losses are accepted"
    some = log([record(0), record(1), record(7)]), mapped(Run(0, 0, 2), Run(7, 2, 1))
    assert problems(of, *some, told=told, policy="stop"), "copied behind what is missing"
    dense = history(life(numbered(0, 9), deleted={0: 2}))
    assert problems(dense, *stopped, told=[lost(1, 2)], policy="stop"), "all of it was copied"


def test_records_below_a_loss_are_missed_although_the_partition_stopped() -> None:
    of = history(life(numbered(0, 20), deleted={0: 12}))
    told = [lost(2, 12, "stopped")]
    of.lives[0].deleted[0] = 12
    target = log([record(0), record(3)])  # 1 and 2 were skipped before the deletion took them

    assert problems(of, target, mapped(Run(0, 0, 1), Run(3, 1, 1)), told=told, policy="stop") != []


def test_losses_of_a_former_life_have_to_be_told_too() -> None:
    former = life(numbered(0, 6), deleted={0: 4})
    now = life(numbered(0, 3, "new "))
    target = log([*(record(n) for n in (0, 4, 5)), *numbered(0, 3, "new ").values()])
    maps = mapped(Run(0, 0, 1), Run(4, 1, 2)), mapped(Run(0, 3, 3))

    assert problems(history(former, now), target, *maps, told=[lost(1, 4)]) == []
    assert problems(history(former, now), target, *maps)


def test_a_former_life_may_lack_its_end_and_nothing_else() -> None:
    former, now = life(numbered(0, 6)), life(numbered(0, 3, "new "))
    news = list(numbered(0, 3, "new ").values())

    short = log([record(0), record(1), *news])
    assert problems(history(former, now), short, None, mapped(Run(0, 2, 3))) == []
    holed = log([record(0), record(2), *news])
    assert problems(history(former, now), holed, None, mapped(Run(0, 2, 3)))


def test_what_a_truncation_took_stays_on_the_target_and_is_told() -> None:
    truncated = life(numbered(0, 6))
    truncated.truncate(0, 4, reported=6)
    truncated.take(0, numbered(4, 8, "new ").items())
    target = log([*numbered(0, 6).values(), *numbered(4, 8, "new ").values()])
    known = mapped(Run(0, 0, 4), Run(4, 6, 4))

    assert problems(history(truncated), target, known, told=[lost(4, 6)]) == []
    assert problems(history(truncated), target, known)
    old = mapped(Run(0, 0, 6), Run(6, 8, 2))
    assert problems(history(truncated), target, old, told=[lost(4, 6)])


def test_of_what_was_copied_behind_the_last_report_and_truncated_nobody_can_tell() -> None:
    """Its owner was killed, and the source had lost it before another one could ask for it."""
    for records in (numbered(0, 9), dict.fromkeys(range(9), record("same"))):
        truncated = life(records)
        truncated.truncate(0, 3, reported=6)
        truncated.take(0, dict.fromkeys((3, 5, 7), record("same")).items())
        target, known = log(list(records.values())), mapped(Run(0, 0, 6))
        of = history(truncated, interrupted=True)

        assert problems(of, target, known, told=[lost(3, 6, "stopped")], policy="stop") == []
        assert problems(of, target, known, told=[lost(3, 5, "stopped")], policy="stop")
        whole = history(truncated)
        assert problems(whole, target, known, told=[lost(3, 6, "stopped")], policy="stop")


def test_a_target_that_was_cut_has_to_hold_everything_again() -> None:
    of = history(life(numbered(0, 6)))
    of.cut_target(0, 4)

    whole = log(list(numbered(0, 6).values()))
    assert problems(of, whole, mapped(Run(0, 0, 6))) == []
    lacking = [(n, record(n)) for n in (0, 1, 2, 3)] + [(6, record(5))]
    assert problems(of, lacking, mapped(Run(0, 0, 4), Run(5, 6, 1)))


def test_equal_records_of_a_trimmed_target_may_come_again_where_losses_are_accepted() -> None:
    """Its owner was killed before a report: nothing says which of them the target still holds."""
    records = {at: record(at % 2) for at in range(12)}
    target = [(at, record(at % 2)) for at in range(8, 10)] + log([*records.values()], 11)
    told = [PartitionStatus("T", 0, "copying", "2 records: not in the map")]
    known = mapped(Run(0, 11, 12))

    def of(**facts: object) -> TopicHistory:
        return history(life(records), **{"interrupted": True, "trimmed": {0: 8}, **facts})

    assert problems(of(), target, known, told=told) == []
    assert problems(of(), target, known), "it has to be told"
    assert problems(of(interrupted=False), target, known, told=told)
    assert problems(of(trimmed={}), target, known, told=told)
    assert problems(of(), target, known, told=told, policy="stop")
    kept = {0: {at: record(at % 2) for at in range(8)}}
    from_two = mapped(Run(2, 11, 10))
    again = target[:2] + log([*records.values()][2:], 11)
    assert problems(of(kept=kept), again, from_two, told=told) == []
    assert problems(of(), again, from_two, told=told), "the first two never stood there"
    other = [(8, record(0)), (9, record("single")), *target[2:]]
    single = history(life({**records, 12: record("single")}), interrupted=True, trimmed={0: 8})
    copied = [*other, (23, record("single"))]
    assert problems(single, copied, mapped(Run(0, 11, 13)), told=told), "one has one place"


def test_where_losses_stop_a_partition_equal_records_of_a_trimmed_target_do() -> None:
    records = {at: record(at % 2) for at in range(12)}
    target = [(at, record(at % 2)) for at in range(8, 10)]
    told = [PartitionStatus("T", 0, "stopped", "position undecidable at 8")]

    for trimmed, right in (({0: 8}, True), ({}, False)):
        of = history(life(records), interrupted=True, trimmed=trimmed)

        assert (problems(of, target, None, told=told, policy="stop") == []) == right
    moving = history(life(records), interrupted=True, trimmed={0: 8})
    assert problems(moving, target, None, policy="stop"), "it has not stopped"


def test_the_map_of_a_topic_that_was_deleted_is_cut_by_nobody_with_the_target() -> None:
    """Its owner had not noticed yet that the target had lost the end of it."""
    of = history(life(numbered(0, 6)), life(numbered(0, 2, "new ")))
    target = log([*numbered(0, 4).values()]) + log([*numbered(0, 2, "new ").values()], 5)
    maps = mapped(Run(0, 0, 6)), mapped(Run(0, 5, 2))

    assert problems(of, target, *maps), "the target has lost nothing"
    of.cut_target(0, 4)
    assert problems(of, target, *maps) == []
    holed = [pair for pair in target if pair[0] != 2]
    assert problems(of, holed, *maps), "below the cut"


def test_what_the_target_has_dropped_is_no_loss_and_what_was_never_there_is() -> None:
    of = history(life(numbered(0, 6)))
    of.trim_target(0, 3, log([record(0), record(1), record(2), record(3)]))
    left = log([record(3), record(4), record(5)], 3)

    assert problems(of, left, mapped(Run(0, 0, 6))) == []
    of = history(life(numbered(0, 6)))
    of.trim_target(0, 2, log([record(0), record(2)]))
    assert problems(of, log([record(3), record(4), record(5)], 2), mapped(Run(3, 2, 3)))


def test_a_compacted_target_holds_the_newest_record_of_each_key() -> None:
    records = {at: record(at, b"k%d" % (at % 2)) for at in range(6)}
    of = history(life(records))
    of.remote_configs = {"cleanup.policy": "compact"}
    known = mapped(Run(0, 0, 6))

    assert problems(of, [(4, records[4]), (5, records[5])], known) == []
    assert problems(of, [(0, records[0]), (2, records[2]), (5, records[5])], known)


def test_a_refused_record_may_be_missing_while_the_target_refused_it_and_is_told() -> None:
    big = LoggedRecord(None, b"x" * 900, (), (1, 5))
    records = {0: record(0), 1: big, 2: record(2)}
    target, known = log([record(0), record(2)]), mapped(Run(0, 0, 1), Run(2, 1, 1))

    of = history(life(records), refusals={0: [Refusals(1000, 0, 3)]})
    assert problems(of, target, known, told=[lost(1, 2)]) == []
    assert problems(of, target, known)
    assert problems(of, target, known, told=[lost(1, 2)], policy="stop")
    before = history(life(records), refusals={0: [Refusals(1000, 2, 3)]})
    assert problems(before, target, known, told=[lost(1, 2)])


def test_strangers_that_the_copy_has_passed_have_to_be_told() -> None:
    target = log([record(0), record("stranger 1"), record(1)])
    of, known = history(life(numbered(0, 2))), mapped(Run(0, 0, 1), Run(1, 2, 1))

    assert problems(of, target, known)
    told = PartitionStatus("T", 0, "copying", "foreign records at target offsets 1 to 2")
    assert problems(of, target, known, told=[told]) == []


def test_what_comes_again_in_a_new_remote_topic_stands_at_its_beginning_only() -> None:
    records = numbered(0, 4)
    of = history(life(records), remote_recreated=True)
    told = [PartitionStatus("T", 0, "copying", "foreign records at target offsets 0 to 2")]

    stray = log([record(2), record(3), *records.values()])
    assert problems(of, stray, mapped(Run(0, 2, 4)), told=told) == []
    twice = log([record(0), record(1), record(1), record(2), record(3)])
    assert problems(of, twice, mapped(Run(0, 0, 2), Run(2, 3, 2)), told=told)


def test_ranges_that_touch_cover_what_is_in_them() -> None:
    assert covers([(4, 9), (0, 4)], 2, 9)
    assert not covers([(4, 9), (0, 3)], 2, 9)
    assert not covers([], 2, 9)


def test_a_loss_ends_where_the_copy_went_on_although_the_source_lost_more_afterwards() -> None:
    of = history(life(numbered(0, 8), deleted={0: 6}))
    target = log([record(n) for n in (0, 1, 4, 5, 6, 7)])

    assert problems(of, target, mapped(Run(0, 0, 2), Run(4, 2, 4)), told=[lost(2, 4)]) == []


def test_a_new_life_that_was_truncated_before_it_was_copied_is_found_as_it_became() -> None:
    former, now = life(numbered(0, 3, "former ")), life(numbered(0, 3, "gone "))
    now.truncate(0, 0, reported=0)
    now.take(0, numbered(0, 3).items())
    target = log([*numbered(0, 3, "former ").values(), *numbered(0, 3).values()])

    assert problems(history(former, now), target, mapped(Run(0, 0, 3)), mapped(Run(0, 3, 3))) == []


def test_a_record_that_the_flow_leaves_out_is_no_loss() -> None:
    skipped = LoggedRecord(None, b"1", (("skipped", b""),), (1, 5))
    of = history(
        life({0: record(0), 1: skipped, 2: record(2)}, deleted={0: 2}),
        settings=RecordSettings(exclude_headers=("skipped",)),
    )
    target, known = log([record(0), record(2)]), mapped(Run(0, 0, 1), Run(2, 1, 1))

    assert problems(of, target, known, policy="stop") == []
    assert problems(history(life(numbered(0, 3))), target, known)


def test_what_is_written_in_place_of_a_truncated_end_may_be_refused_too() -> None:
    """Whether the source lost its end before the target began to refuse, or afterwards."""
    told_late, told = history(life(numbered(0, 3))), history(life(numbered(0, 3)))
    told_late.truncate(0, 1, 3)
    told_late.begin_refusals(0, 1000, 3)
    told.begin_refusals(0, 1000, 3)
    told.truncate(0, 1, 3)
    told_later = history(life(numbered(0, 3)))
    told_later.truncate(0, 1, 2)  # its owner had copied 3, and said so afterwards
    told_later.begin_refusals(0, 1000, 3)

    assert [h.refusals[0][-1].first for h in (told_late, told, told_later)] == [1, 1, 1]


def test_losses_that_are_told_as_a_count_are_counted_by_record() -> None:
    """Between two of them stands a marker, of which nobody has to tell."""
    big = LoggedRecord(None, b"x" * 900, (), (1, 5))
    records = {0: record(0), 1: big, 3: big, 4: record(4)}
    target, known = log([record(0), record(4)]), mapped(Run(0, 0, 1), Run(4, 1, 1))
    of = history(life(records), refusals={0: [Refusals(1000, 0, 5)]})

    assert problems(of, target, known, told=[lost(3, 4)], counted=2) == []
    assert problems(of, target, known, told=[lost(3, 4)], counted=1)


def test_the_first_of_equal_copies_may_stand_for_the_originals_that_are_left() -> None:
    records = dict.fromkeys(range(6), record("same", b"key"))
    compacted = life(records, compacted={0: {2, 3, 4}})
    target = log(list(records.values()), 1)
    preferred = mapped(Run(0, 1, 2), Run(5, 3, 1))

    assert problems(history(compacted, interrupted=True), target, preferred) == []
    two_left = life(records, compacted={0: {2, 3}})
    their_map = mapped(Run(0, 1, 2), Run(4, 3, 2))
    assert problems(history(two_left, interrupted=True), target, their_map) == []
    assert problems(history(compacted), target, preferred), "every append was answered"
    fewer = log([record("same", b"key")] * 5, 1)
    assert problems(history(compacted, interrupted=True), fewer, preferred) == []
    kept = history(life(records), interrupted=True)
    assert problems(kept, target, preferred), "the source still has what the map leaves out"
    twice = log([*records.values(), record("same", b"key")], 1)
    assert problems(history(compacted, interrupted=True), twice, preferred), "one too many"
    others = log([*list(records.values())[:5], record("other", b"key")], 1)
    assert problems(history(compacted, interrupted=True), others, preferred)
