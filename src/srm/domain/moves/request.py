"""Request for a move of groups and producers, from one cluster (source) to another (target).

Each setting is declared once; commands, forms, pages and documents derive from it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from hashlib import sha256
from itertools import chain
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, get_args, get_type_hints

from pydantic import ConfigDict, ValidationError

from srm.domain.moves.routing import FenceKind, RedirectNames
from srm.domain.names.topics import Flow
from srm.domain.text.amount import some
from srm.domain.text.documents import adapter, cause
from srm.errors import UsageError

Kind = Literal["switch", "seconds", "names", "list", "choice", "text"]
SECTIONS: Final = ("Move", "Time limits", "Details")
_D = TypeVar("_D")


@dataclass(frozen=True, slots=True)
class MoveSetting:
    """One setting as shown to operators, as an annotation of the field of its value.

    ``bounds`` are seconds; ``option`` is its name in commands: empty is derived, None is none.
    """

    text: str
    choices: Mapping[str, str] = field(default_factory=dict)
    bounds: tuple[float, float] = (0, 0)
    section: str = SECTIONS[0]
    option: str | None = ""
    letter: str = ""
    name: str = ""
    default: Any = ""

    @property
    def kind(self) -> Kind:
        """The kind of its values: ``list`` has choices and an order, ``names`` are free text."""
        if isinstance(self.default, bool):
            return "switch"
        if isinstance(self.default, float):
            return "seconds"
        if isinstance(self.default, tuple):
            return "list" if self.choices else "names"
        return "choice" if self.choices else "text"

    @property
    def title(self) -> str:
        return self.text.partition(". ")[0] + (" (seconds)" if self.kind == "seconds" else "")

    @property
    def help(self) -> str:
        return self.text.partition(". ")[2]

    @property
    def meanings(self) -> dict[str, str]:
        """Choices with a label other than their value."""
        return {value: label for value, label in self.choices.items() if label != value}


def limit(lowest: float, highest: float, text: str, option: str | None = "") -> MoveSetting:
    text = f"{text} {lowest:g} to {highest:g} seconds."
    return MoveSetting(text, bounds=(lowest, highest), section="Time limits", option=option)


def detail(text: str, **choices: str) -> MoveSetting:
    return MoveSetting(text, choices, section="Details")


def _settings(of: type) -> tuple[MoveSetting, ...]:
    hints = get_type_hints(of, include_extras=True)
    return tuple(_of_field(each, hints[each.name]) for each in fields(of))


# A type is hashable, but mypy rejects it.
settings_of: Final[Callable[[Any], tuple[MoveSetting, ...]]] = cache(_settings)
"""Return the settings that a dataclass declares, in the order of its fields."""


def require_bounds(of: Any) -> None:
    for setting in settings_of(type(of)):
        value, (lowest, highest) = getattr(of, setting.name), setting.bounds
        if setting.kind == "seconds" and not lowest <= value <= highest:
            own = f" ({setting.option})" if setting.option not in {None, _option(setting)} else ""
            found = "negative" if value < 0 else f"{value:g}"
            limits = f"give {lowest:g} to {highest:g} seconds"
            raise UsageError(f"{setting.name}{own} of the move is {found}: {limits}")


def read(of: type[_D], given: Mapping[str, Any], known: Iterable[str] = ()) -> _D:
    """Read settings; null, an empty text and an absent key have one meaning: the default.

    ``known``: the names that an error lists; those of the type by default.
    """
    try:
        return adapter(of).validate_python({k: v for k, v in given.items() if v not in (None, "")})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "request"
        if first["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
            names = ", ".join(known or (setting.name for setting in settings_of(of)))
            raise UsageError(f"move has no setting {where!r}: known are {names}") from None
        raise UsageError(f"move setting {where!r} cannot be used: {cause(first['msg'])}") from None


def _of_field(each: Field[Any], hint: Any) -> MoveSetting:
    [setting] = (part for part in hint.__metadata__ if isinstance(part, MoveSetting))
    shown = {value: f"{value}: {meaning}" for value, meaning in setting.choices.items()}
    choices = {value: shown.get(value, value or "as configured") for value in _values(hint)}
    default = next(iter(choices), "") if each.default is MISSING else each.default
    named = replace(setting, name=each.name, choices=choices, default=default)
    return replace(named, option=_option(named)) if setting.option == "" else named


def _option(setting: MoveSetting) -> str:
    return f"--{setting.name.replace('_', '-')}"


def _values(hint: Any) -> Iterator[str]:
    for part in get_args(hint):
        yield from (part,) if isinstance(part, str) else _values(part)


Operation = Literal["failover", "failback"]
Mode = Literal["planned", "unplanned"]

_NOT_IN_ID: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """Settings of a requested move, as in commands, forms and documents.

    An unplanned move abandons the source: srm does not read it or wait for clients, and groups
    continue at their last known places.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    operation: Annotated[
        Operation,
        MoveSetting(
            "Operation. Both take the same steps. Of two clusters a failover leaves the first, a "
            "failback the second; From and To cluster override this."
        ),
    ]
    source: Annotated[
        str, MoveSetting("From cluster. Clients leave it; by default the operation names it.")
    ]
    target: Annotated[
        str, MoveSetting("To cluster. Clients go to it; by default it is the other one.")
    ]
    topics: Annotated[
        tuple[str, ...],
        MoveSetting(
            "Topics. Original names, such as Payments (never P.Payments); by default all that the "
            "named groups read, without named groups all that the flows replicate.",
            option="--topic",
            letter="-t",
        ),
    ] = ()
    groups: Annotated[
        tuple[str, ...],
        MoveSetting(
            "Consumer groups. By default all that the configuration and the control lists select "
            "and that have offsets on the topics.",
            option="--group",
            letter="-g",
        ),
    ] = ()
    exclude_groups: Annotated[
        tuple[str, ...],
        MoveSetting(
            "Excluded groups. They stay on the source, whatever else moves.",
            option="--exclude-group",
        ),
    ] = ()
    mode: Annotated[
        Mode,
        MoveSetting(
            "Mode. Unplanned shows the expected loss and waits for its approval.",
            {
                "planned": "both clusters live, nothing is lost",
                "unplanned": "the source is abandoned and not read",
            },
        ),
    ] = "planned"
    wait_seconds: Annotated[
        float, limit(1, 21_600, "Time from begin of hold to go. Then clients go back.", "--timeout")
    ] = 600.0
    resume_seconds: Annotated[
        float, limit(1, 3_600, "Time limit from go until groups work. Then only the run fails.")
    ] = 120.0
    quiet_seconds: Annotated[
        float, limit(0, 300, "Quiet time of the source. Producers count as stopped after it.")
    ] = 1.0
    slow_writer_seconds: Annotated[
        float,
        limit(
            0,
            3_600,
            "Quiet time where producers follow no route. Producers without srm.client "
            "that write less often are not detected before go.",
        ),
    ] = 5.0
    residue_seconds: Annotated[
        float, limit(0, 14_400, "Watch the source after go. The report counts its new records.")
    ] = 300.0
    redirect: Annotated[
        RedirectNames,
        detail(
            "How clients are redirected, in order. By default as configured.",
            routing="clients follow __srm-routing, always first",
            manual="the move lists clients to stop and start, and waits for that",
        ),
    ] = ()
    fence: Annotated[
        Literal[""] | FenceKind,
        detail(
            "Fence. By default as configured.", acl="deny writes on the source from the hold on"
        ),
    ] = ""
    accept_skips: Annotated[
        bool, detail("Accept skipped records. Move groups although the target lacks unread ones.")
    ] = False
    accept_open_transactions: Annotated[
        bool, detail("Accept open transactions. Move without the records that they hold back.")
    ] = False
    accept_stray_offsets: Annotated[
        bool, detail("Accept stray offsets. Move without those on topics that do not move.")
    ] = False
    reroute: Annotated[
        bool, detail("Reroute. Unplanned: take over clients that are routed elsewhere.")
    ] = False
    overwrite: Annotated[
        bool, detail("Overwrite. Replace later offsets that consumers committed on the target.")
    ] = False

    def __post_init__(self) -> None:
        Flow.parse(f"{self.source}->{self.target}")
        require_bounds(self)
        if self.reroute and not self.is_unplanned:
            raise UsageError("reroute needs an unplanned move: add --mode unplanned")
        for name in ("topics", "groups", "exclude_groups"):
            values = getattr(self, name)
            if len(set(values)) != len(values) or not all(values):
                raise UsageError(f"{name} of the move has an empty or repeated name: {values}")
        if both := [one for one in self.groups if one in self.exclude_groups]:
            raise UsageError(f"groups {some(both)} of the move are named and excluded: choose one")

    @property
    def of_everything(self) -> MoveRequest:
        """The same request without names: of all topics and groups."""
        return replace(self, topics=(), groups=(), exclude_groups=())

    @property
    def is_unplanned(self) -> bool:
        return self.mode == "unplanned"

    @property
    def flow(self) -> Flow:
        return Flow(self.source, self.target)

    @property
    def options(self) -> str:
        """The options of a command that repeat the request, but for its mode."""
        words = self.flow.options.split()
        for setting in settings_of(MoveRequest):
            value = getattr(self, setting.name)
            if setting.name in {"source", "target", "mode"} or value == setting.default:
                continue
            name = str(setting.option)
            if setting.kind == "names":
                words += chain.from_iterable((name, shlex.quote(each)) for each in value)
            elif setting.kind == "switch":
                words.append(name)
            else:
                several = ",".join(value) if setting.kind == "list" else value
                words += name, f"{several:g}" if setting.kind == "seconds" else several
        return " ".join(words)

    def quiet_s(self, *, unrouted: bool = True) -> float:
        """Return the quiet time of topics, longer where a slow writer may be unknown."""
        return max(self.quiet_seconds, self.slow_writer_seconds if unrouted else 0.0)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings of a run that do not belong to its move."""

    dry_run: Annotated[
        bool, MoveSetting("Dry run. Only plan and show: nothing changes anywhere.")
    ] = False
    ask_approval: Annotated[
        bool,
        MoveSetting("Ask for approval. Also where failover.approval requires none.", option=None),
    ] = False
    approval_seconds: Annotated[
        float, limit(1, 21_600, "Time limit of the approval. Then the run fails.", None)
    ] = 3600.0

    def __post_init__(self) -> None:
        require_bounds(self)


SETTINGS: Final = settings_of(MoveRequest)
FORM: Final = {each.name: each for each in (*SETTINGS, *settings_of(RunSettings))}
"""Fields of a form: the settings of a move and of its run."""


def ends(
    clusters: Sequence[str], operation: str, source: str | None, target: str | None
) -> tuple[str, str]:
    """Return source and target: of two clusters a failover leaves the first by default."""
    if len(clusters) != 2 and not (source and target):
        raise UsageError(
            f"name source and target of the move: the clusters are {', '.join(clusters)}"
        )
    here, there = clusters[0], clusters[-1]
    if operation == "failback":
        here, there = there, here
    left = source or (here if target != here else there)
    return left, target or (there if left == here else here)


def run_move_id(operation: str, clusters: Sequence[str], run_id: str) -> str:
    """Derive a move id from an Airflow run: a repeated task finds it, a digest makes it unique."""
    digest = sha256(repr([*clusters, run_id]).encode()).hexdigest()[:6]
    return f"{operation}-{_NOT_IN_ID.sub('-', run_id).strip('-')}-{digest}"
