"""Topics of one cluster: what there is, their configs, creating and growing them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from operator import itemgetter
from typing import Any, Final

from confluent_kafka import KafkaError, admin

from srm.domain.names.topics import topic_id_text
from srm.domain.text.amount import some
from srm.engine.cluster_ports import SettingOrigin, TopicDescription, TopicSetting, TopicSpec
from srm.errors import NotFoundError, SrmError, UnavailableError
from srm.kafka.admin.clients import Clients, answers_of, batches, raise_first
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import of_code, on_topic, translate
from srm.kafka.wire.requests import Answer

UNKNOWN_TOPIC_CODES = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's local codes are named so
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - as above
    }
)
_ORIGINS: Final[Mapping[int, SettingOrigin]] = {
    admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
    admin.ConfigSource.DYNAMIC_BROKER_CONFIG.value: "dynamic",
    admin.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "dynamic",
    admin.ConfigSource.STATIC_BROKER_CONFIG.value: "static",
    admin.ConfigSource.DEFAULT_CONFIG.value: "default",
}
_CONTROLLER_LIMIT: Final = 5000
"""Metadata records of one request: Kafka's QuorumController refuses more than 10 000."""
_logger = logging.getLogger(__name__)


def names(clients: Clients, wanted: Collection[str] | None = None) -> dict[str, int]:
    if wanted is not None:
        return {name: one.partitions for name, one in describe(clients, wanted).items()}

    def request(timeout_s: float) -> dict[str, int]:
        found = clients.admin().list_topics(timeout=timeout_s).topics
        return {name: len(topic.partitions) for name, topic in found.items() if not topic.error}

    return clients.call("listing topics", request)


def describe(
    clients: Clients, wanted: Collection[str] | None = None, operation: str = "Describe"
) -> dict[str, TopicDescription]:
    """Describe topics, by default all, absent ones left out; ``operation`` names the right.

    Not by confluent-kafka's admin client: each topic id that it returns stays in memory for ever.
    """
    where = clients.label("describing")

    async def look(brokers: Brokers) -> dict[str, TopicDescription]:
        found = (await brokers.look(wanted))["topics"]
        codes = {one["topic"]: one["error_code"] for one in found} if wanted else {}
        raise_first(
            {
                name: of_code(code, f"{where}: topic {name}", on_topic(operation, name))
                for name, code in codes.items()
                if code and code not in UNKNOWN_TOPIC_CODES
            }
        )
        return {one["topic"]: _description(one) for one in found if not one["error_code"]}

    return {} if wanted is not None and not wanted else clients.request("describing topics", look)


def _description(topic: Answer) -> TopicDescription:
    parts = topic["partitions"]
    leaderless = {one["partition"]: (*one["replicas"],) for one in parts if one["leader"] < 0}
    replicas = min((len(one["replicas"]) for one in parts), default=1)
    name, topic_id = topic["topic"], topic_id_text(topic["topic_id"])
    return TopicDescription(name, topic_id, len(parts), leaderless, replicas)


def settings(clients: Clients, topics: Collection[str]) -> dict[str, dict[str, TopicSetting]]:
    if not topics:
        return {}
    resources = [admin.ConfigResource(admin.ResourceType.TOPIC, name) for name in sorted(topics)]
    doing, start = ("reading topic configs", "reading configs"), admin.AdminClient.describe_configs
    found = _answers(clients, doing, "DescribeConfigs", start, resources, UNKNOWN_TOPIC_CODES)
    return {
        resource.name: {
            name: TopicSetting(entry.value, _ORIGINS[entry.source])
            for name, entry in entries.items()
            if _is_shown(entry)
        }
        for resource, entries in found.items()
    }


def _new(spec: TopicSpec) -> admin.NewTopic:
    return admin.NewTopic(
        spec.name, spec.partitions, spec.replication_factor, config=dict(spec.configs)
    )


def _all_new(specs: Collection[TopicSpec]) -> list[tuple[admin.NewTopic, int]]:
    return [(_new(spec), 1 + spec.partitions + len(spec.configs)) for spec in specs]


def creation_problems(clients: Clients, specs: Collection[TopicSpec]) -> dict[str, SrmError]:
    doing = f"checking whether topics {_list_names([one.name for one in specs])} can be created"
    start = admin.AdminClient.create_topics
    return _problems(clients, (doing, "creating"), "Create", start, _all_new(specs))


def change_problem(
    clients: Clients, topic: str, changes: Mapping[str, str | None]
) -> SrmError | None:
    doing = f"checking whether configs of topic {topic} can be changed", "changing configs"
    start = admin.AdminClient.incremental_alter_configs
    change = _config_resource(topic, changes), len(changes)
    return _problems(clients, doing, "AlterConfigs", start, [change]).get(topic)


def _problems(
    clients: Clients,
    doing: tuple[str, str],
    operation: str,
    start: Callable[..., Mapping[Any, Future[Any]]],
    changes: Collection[tuple[Any, int]],
) -> dict[str, SrmError]:
    """Return why brokers would refuse changes, by topic; parameters as :func:`_change`."""
    found: dict[str, SrmError] = {}
    trying = partial(start, validate_only=True)
    for batch in batches(changes, _CONTROLLER_LIMIT, itemgetter(1)):
        _answers(clients, doing, operation, trying, [one for one, _ in batch], problems=found)
    return found


def create(clients: Clients, specs: Collection[TopicSpec]) -> None:
    """Create topics and wait until they are visible; existing topics are not changed."""
    if not specs:
        return
    wanted = {spec.name for spec in specs}
    doing, existing = f"creating topics {_list_names(wanted)}", {KafkaError.TOPIC_ALREADY_EXISTS}
    _change(
        clients,
        (doing, "creating"),
        "Create",
        admin.AdminClient.create_topics,
        _all_new(specs),
        existing,
    )
    clients.wait_until(
        f"new topics {_list_names(wanted)}", lambda: describe(clients, wanted).keys() >= wanted
    )


def grow(clients: Clients, counts: Mapping[str, int]) -> None:
    """Grow topics and wait until that is visible; one that is as large already is left alone."""
    current = describe(clients, counts.keys()) if counts else {}
    absent = counts.keys() - current.keys()
    if absent:
        raise NotFoundError(
            f"growing topics on cluster {clients.alias}: {_list_names(absent)} does not exist"
        )
    larger = {name: count for name, count in counts.items() if count > current[name].partitions}
    if not larger:
        return
    new = [(admin.NewPartitions(name, count), count) for name, count in larger.items()]

    def visible() -> bool:
        now = describe(clients, larger.keys())
        return all(name in now and now[name].partitions >= n for name, n in larger.items())

    doing = f"growing topics {_list_names(larger)}", "growing"
    _change(clients, doing, "Alter", admin.AdminClient.create_partitions, new)
    clients.wait_until(f"new partitions of {_list_names(larger)}", visible)


def alter(clients: Clients, changes: Mapping[str, Mapping[str, str | None]]) -> None:
    """Set, or delete with None, single overrides; wait shortly until the broker has applied them.

    The broker may return a value in another notation than the one that was set.
    """
    resources = [(_config_resource(topic, one), len(one)) for topic, one in changes.items() if one]
    if not resources:
        return

    def visible() -> bool:
        own = {
            topic: {
                name: _in_short(one.value) for name, one in found.items() if one.origin == "topic"
            }
            for topic, found in settings(clients, changes.keys()).items()
        }
        return all(
            own.get(topic, {}).get(name) == _in_short(value)
            for topic, entries in changes.items()
            for name, value in entries.items()
        )

    doing = f"changing configs of {_list_names(changes)}", "changing configs"
    start = admin.AdminClient.incremental_alter_configs
    _change(clients, doing, "AlterConfigs", start, resources)
    try:
        clients.wait_until(f"new configs of {_list_names(changes)}", visible, 5.0)
    except UnavailableError as error:
        _logger.debug("continuing: %s", error)


def _config_resource(topic: str, changes: Mapping[str, str | None]) -> admin.ConfigResource:
    operations = [_operation(name, value) for name, value in changes.items()]
    return admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=operations)


def _operation(name: str, value: str | None) -> admin.ConfigEntry:
    if value is None:
        return admin.ConfigEntry(name, None, incremental_operation=admin.AlterConfigOpType.DELETE)
    return admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)


def _in_short(value: str | None) -> str | None:
    return None if value is None else "".join(value.split()).lower()


def _is_shown(entry: admin.ConfigEntry) -> bool:
    return (
        entry.source in _ORIGINS
        and not entry.is_read_only
        and not entry.is_sensitive
        and entry.value is not None
    )


def _change(
    clients: Clients,
    doing: tuple[str, str],
    operation: str,
    start: Callable[..., Mapping[Any, Future[Any]]],
    changes: Collection[tuple[Any, int]],
    expected: Collection[int] = frozenset(),
) -> None:
    """Make changes, each with its records in the controller's log; one that fails stops no other.

    The parameters are those of :func:`_answers`.
    """
    failures = []
    for batch in batches(changes, _CONTROLLER_LIMIT, itemgetter(1)):
        try:
            _answers(clients, doing, operation, start, [change for change, _ in batch], expected)
        except UnavailableError:
            raise
        except SrmError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _answers(
    clients: Clients,
    doing: tuple[str, str],
    operation: str,
    start: Callable[..., Mapping[Any, Future[Any]]],
    what: object,
    expected: Collection[int] = frozenset(),
    problems: dict[str, SrmError] | None = None,
) -> dict[Any, Any]:
    """Call the admin client for topics; return its answers but those with an expected error.

    ``doing`` is for messages: the call, and the same of one topic. ``operation`` is the right.
    ``problems``: takes the errors that a later attempt would repeat, by topic, which are then not
    raised.
    """

    def error_of(key: object, error: KafkaError) -> SrmError | None:
        if error.code() in expected:
            return None
        name = key.name if isinstance(key, admin.ConfigResource) else str(key)
        where = f"{clients.label(doing[1])}: topic {name}"
        failure = translate(error, where, on_topic(operation, name))
        if problems is None or isinstance(failure, UnavailableError):
            return failure
        problems[name] = failure
        return None

    def request(timeout_s: float) -> dict[Any, Any]:
        futures = start(clients.admin(), what, request_timeout=timeout_s)
        return answers_of(futures, timeout_s, error_of)

    return clients.call(doing[0], request)


def _list_names(topics: Collection[str]) -> str:
    return some(sorted(topics), 5)
