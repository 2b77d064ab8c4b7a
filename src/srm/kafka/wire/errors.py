"""Errors of brokers and librdkafka as srm's: above ``srm.kafka`` there is no KafkaException.

A broker says only that a right is missing: which one a call needs is named here by error code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from srm import errors
from srm.domain.text.amount import some
from srm.kafka.wire.requests import Answer

TOPIC: Final = 29
GROUP: Final = 30
CLUSTER: Final = 31
TRANSACTIONAL_ID: Final = 53

Needs = Mapping[int, str]
"""A right by the error code for its want, TOPIC_AUTHORIZATION_FAILED and so on."""

NOTHING: Final[Needs] = MappingProxyType({})
_KINDS: Final = {TOPIC: "topic", GROUP: "group", TRANSACTIONAL_ID: "transactional id"}
_NAMES: Final[Mapping[type[errors.SrmError], str]] = {
    # A later attempt may succeed: brokers restart, leaders move, coordinators load.
    errors.UnavailableError: """
        _ALL_BROKERS_DOWN _CRIT_SYS_RESOURCE _DESTROY _DESTROY_BROKER _FAIL _INCONSISTENT _INTR
        _IN_PROGRESS _ISR_INSUFF _MSG_TIMED_OUT _NODE_UPDATE _OUTDATED _PARTIAL _PREV_IN_PROGRESS
        _PURGE_INFLIGHT _PURGE_QUEUE _QUEUE_FULL _RESOLVE _RETRY _TIMED_OUT _TIMED_OUT_QUEUE
        _TRANSPORT _UNKNOWN_BROKER _WAIT_CACHE _WAIT_COORD BROKER_NOT_AVAILABLE
        CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE
        ELIGIBLE_LEADERS_NOT_AVAILABLE FENCED_LEADER_EPOCH FETCH_SESSION_ID_NOT_FOUND
        INVALID_FETCH_SESSION_EPOCH KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE LISTENER_NOT_FOUND
        NETWORK_EXCEPTION NOT_CONTROLLER NOT_COORDINATOR NOT_ENOUGH_REPLICAS
        NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_FOR_PARTITION OFFSET_NOT_AVAILABLE
        OPERATION_NOT_ATTEMPTED PREFERRED_LEADER_NOT_AVAILABLE REBOOTSTRAP_REQUIRED
        REPLICA_NOT_AVAILABLE REQUEST_TIMED_OUT SHARE_SESSION_LIMIT_REACHED STALE_BROKER_EPOCH
        STALE_CTRL_EPOCH THROTTLING_QUOTA_EXCEEDED TRANSACTION_ABORTABLE
        TRANSACTION_COORDINATOR_FENCED UNKNOWN_CONTROLLER_ID UNKNOWN_LEADER_EPOCH
        UNSTABLE_OFFSET_COMMIT""",
    errors.AuthorizationError: """
        _AUTHENTICATION CLUSTER_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED
        DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_OWNER_MISMATCH GROUP_AUTHORIZATION_FAILED
        PRINCIPAL_DESERIALIZATION_FAILURE SASL_AUTHENTICATION_FAILED TOPIC_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED UNACCEPTABLE_CREDENTIAL""",
    errors.NotFoundError: """
        _UNKNOWN_GROUP _UNKNOWN_PARTITION _UNKNOWN_TOPIC DELEGATION_TOKEN_NOT_FOUND
        GROUP_ID_NOT_FOUND LOG_DIR_NOT_FOUND RESOURCE_NOT_FOUND SHARE_SESSION_NOT_FOUND
        UNKNOWN_SUBSCRIPTION_ID UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PART VOTER_NOT_FOUND""",
    # Answers to a client that is not a member of an active group.
    errors.GroupActiveError: """
        _ASSIGNMENT_LOST _MAX_POLL_EXCEEDED FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH
        GROUP_SUBSCRIBED_TO_TOPIC ILLEGAL_GENERATION MEMBER_ID_REQUIRED NON_EMPTY_GROUP
        REBALANCE_IN_PROGRESS STALE_MEMBER_EPOCH UNKNOWN_MEMBER_ID UNRELEASED_INSTANCE_ID""",
    errors.FencedError: """
        _FENCED FENCED_STATE_EPOCH INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING
        PRODUCER_FENCED STREAMS_TOPOLOGY_FENCED""",
    errors.ConflictError: """
        _CONFLICT _EXISTING_SUBSCRIPTION DUPLICATE_VOTER ELECTION_NOT_NEEDED GROUP_MAX_SIZE_REACHED
        INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_TOPIC_ID INCONSISTENT_VOTER_SET
        NO_REASSIGNMENT_IN_PROGRESS REASSIGNMENT_IN_PROGRESS TOPIC_ALREADY_EXISTS
        UNSUPPORTED_ASSIGNOR""",
    errors.DataLossError: """
        _AUTO_OFFSET_RESET _LOG_TRUNCATION OFFSET_OUT_OF_RANGE""",
    errors.IntegrityError: """
        _BAD_COMPRESSION _BAD_MSG _GAPLESS_GUARANTEE _INVALID_DIFFERENT_RECORD
        DUPLICATE_SEQUENCE_NUMBER INVALID_MSG INVALID_MSG_SIZE INVALID_RECORD INVALID_RECORD_STATE
        OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID""",
    # Settings of the client or the broker that forbid the request.
    errors.ConfigError: """
        _FS _INVALID_ARG _NOT_CONFIGURED _NOT_IMPLEMENTED _SSL _UNKNOWN_PROTOCOL
        _UNSUPPORTED_FEATURE DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        ILLEGAL_SASL_STATE INVALID_CONFIG INVALID_REPLICATION_FACTOR INVALID_SESSION_TIMEOUT
        INVALID_TRANSACTION_TIMEOUT MISMATCHED_ENDPOINT_TYPE POLICY_VIOLATION SECURITY_DISABLED
        TOPIC_DELETION_DISABLED UNSUPPORTED_COMPRESSION_TYPE UNSUPPORTED_ENDPOINT_TYPE
        UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_SASL_MECHANISM UNSUPPORTED_VERSION""",
    errors.UsageError: """
        _INVALID_TYPE DUPLICATE_RESOURCE INVALID_COMMIT_OFFSET_SIZE INVALID_GROUP_ID
        INVALID_PARTITIONS INVALID_PRINCIPAL_TYPE INVALID_REGULAR_EXPRESSION
        INVALID_REPLICA_ASSIGNMENT INVALID_REQUEST INVALID_REQUIRED_ACKS INVALID_TIMESTAMP
        MSG_SIZE_TOO_LARGE OFFSET_METADATA_TOO_LARGE RECORD_LIST_TOO_LARGE STREAMS_INVALID_TOPOLOGY
        STREAMS_INVALID_TOPOLOGY_EPOCH TELEMETRY_TOO_LARGE TOPIC_EXCEPTION""",
    # Mistakes in srm or in the broker: nothing a user can do but report them.
    errors.SrmError: """
        _APPLICATION _ASSIGN_PARTITIONS _FATAL _KEY_DESERIALIZATION _KEY_SERIALIZATION _NOENT _NOOP
        _NO_OFFSET _PARTITION_EOF _READ_ONLY _REVOKE_PARTITIONS _STATE _UNDERFLOW
        _VALUE_DESERIALIZATION _VALUE_SERIALIZATION FEATURE_UPDATE_FAILED INVALID_REGISTRATION
        INVALID_SHARE_SESSION_EPOCH INVALID_TXN_STATE INVALID_UPDATE_VERSION INVALID_VOTER_KEY
        NO_ERROR UNKNOWN""",
}
ERROR_CLASSES: Final[Mapping[int, type[errors.SrmError]]] = MappingProxyType(
    {getattr(KafkaError, name): cls for cls, names in _NAMES.items() for name in names.split()}
)
"""The srm error class of every error code of the client library."""
OWN_PRINCIPAL: Final = "srm's principal"
_ACTIONS: Final[Mapping[type[errors.SrmError], str]] = {
    errors.UnavailableError: "check that the cluster is up, bootstrap.servers and "
    "security.protocol, then retry",
    errors.AuthorizationError: "check the credentials and the ACLs of {principal}",
    errors.ConfigError: "check the client settings of this cluster and the broker's",
}
_ACTIONS_BY_CODE: Final[Mapping[int, str]] = {
    KafkaError.INVALID_REPLICATION_FACTOR: "set replication.factor, or that of the topic "
    "(offset-syncs.topic.replication.factor, also of checkpoints and heartbeats), to at most the "
    "number of the cluster's brokers",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "set transaction.max.timeout.ms of the brokers to "
    "10000 or more",
    KafkaError.POLICY_VIOLATION: "change the setting, exclude it (config.properties.exclude), or "
    "allow it in the policy of the brokers",
}
_MEANINGS: Final[Mapping[type[errors.SrmError], str]] = {
    errors.GroupActiveError: "; the group has members, stop its consumers first",
    errors.FencedError: "; another process has taken over",
}


def error_name(code: int) -> str:
    return KafkaError(code).name()


def on_cluster(operation: str) -> Needs:
    return {CLUSTER: f"{operation} on the cluster"}


def missing(code: int, needs: Needs, principal: str = OWN_PRINCIPAL) -> str | None:
    """Say what to grant after an error; None where the error is not about rights."""
    needed = needs.get(code)
    return None if needed is None else f"grant {needed} to {principal} (docs/security.md)"


def _on(kind: int, operation: str, *names: str) -> dict[int, str]:
    several = {*names}
    ending = "s" if len(several) > 1 else ""
    return {kind: f"{operation} on {_KINDS[kind]}{ending} {some(sorted(several), 3)}"}


on_topic: Final = partial(_on, TOPIC)
on_group: Final = partial(_on, GROUP)
on_transactional_id: Final = partial(_on, TRANSACTIONAL_ID)


def translate(
    error: KafkaException | KafkaError,
    where: str,
    needs: Needs = NOTHING,
    principal: str = OWN_PRINCIPAL,
) -> errors.SrmError:
    """Build the srm error; ``where`` is operation and cluster: reading groups of cluster P."""
    kafka_error = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(kafka_error, KafkaError):
        return errors.SrmError(f"{where}: {kafka_error}")
    cls = ERROR_CLASSES.get(kafka_error.code())
    if cls is None:
        cls = errors.UnavailableError if kafka_error.retriable() else errors.SrmError
    code = kafka_error.code()
    action = missing(code, needs, principal) or _ACTIONS_BY_CODE.get(code)
    action = action or _ACTIONS.get(cls, "").format(principal=principal)
    text = " ".join(kafka_error.str().split())
    return cls(f"{where}: {text} ({kafka_error.name()}){_MEANINGS.get(cls, '')}", action)


def of_code(code: int, where: str, needs: Needs = NOTHING) -> errors.SrmError:
    return translate(KafkaError(code), where, needs)


def check(
    answers: Iterable[Answer], where: str, needs: Needs = NOTHING, fine: Collection[int] = ()
) -> None:
    """Raise the first error of brokers' answers that is not a ``fine`` one."""
    for answer in answers:
        code = answer["error_code"]
        if code and code not in fine:
            raise of_code(code, where, needs)


@contextmanager
def kafka_errors(
    where: str, needs: Needs = NOTHING, principal: str = OWN_PRINCIPAL
) -> Iterator[None]:
    try:
        yield
    except (KafkaException, SystemError) as error:
        cause = fatal_cause(error)
        if cause is None:
            raise
        raise translate(cause, where, needs, principal) from error


def fatal_cause(error: BaseException) -> KafkaException | None:
    """Return the KafkaException that is or caused an error, None for one of Python's own.

    confluent-kafka raises a fatal error (being fenced) in a callback; the next one ends in this.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KafkaException):
        cause = cause.__cause__
    return cause
