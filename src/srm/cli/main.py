"""The programs srm, srm-control and srm-service, whose commands are imported when they run."""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, ClassVar, Final, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from srm import __version__, patience
from srm.cli import console
from srm.cli.commands import PROGRAMS, Entry
from srm.errors import EXIT_CODES, UsageError

SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_TYPES: Final = {"str": "TEXT", "path": "FILE", "file": "FILE", "dir": "DIR", "Path": "FILE"}


class Commands(UserDict[str, Any]):
    """Commands by name, from their entries; each is imported when it is read."""

    def __getitem__(self, name: str) -> Any:
        return _build(name, self.data[name])


class LazyGroup(TyperGroup):
    """A group of commands; its help comes from the table."""

    entry: ClassVar[Entry]

    def __init__(self, *, entry: Entry | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        found = self.entry if entry is None else entry
        self._entries, self._default = found.commands, found.default
        self.commands: Any = Commands(self._entries)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 -- typer's signature
        return list(self.commands)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take an argument that is not a command as one of the default command.

        Without one, ``version`` and ``help`` are the options of these names.
        """
        word = args[0] if args else ""
        if self._default and word not in {"", *self.commands, *ctx.help_option_names}:
            args = [self._default, *args]
        elif any(f"--{word}" in one.opts for one in self.get_params(ctx) if one.is_eager):
            args = [f"--{word}", *args[1:]]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 -- typer's
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self._entries.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from typer._click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=entry.help)
            for name, entry in self._entries.items()
            if name.startswith(incomplete)
        ]
        if self._default and not incomplete.startswith("-"):
            default = self.commands[self._default]
            inner = default.make_context(self._default, [], parent=ctx, resilient_parsing=True)
            for argument in default.params[:1]:
                names += argument.shell_complete(inner, incomplete)
        return [*names, *super(TyperGroup, self).shell_complete(ctx, incomplete)]


class CliCommand(TyperCommand):
    """A command: its help has examples, ``--watch`` needs no number, lists may have blanks."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples: tuple[str, ...] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the usual interval after a bare ``--watch``, and join ``--add a, b``."""
        names = {name for parameter in self.params for name in parameter.opts}
        if "--watch" in names:
            args = list(_with_interval(args))
        if "--add" in names:
            args = _join_lists(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options in the words of a shell."""
        for heading, kind in (("Arguments", "argument"), ("Options", "option")):
            of_kind = [each for each in self.get_params(ctx) if each.param_type_name == kind]
            rows = [row for each in of_kind if (row := help_row(each, ctx)) is not None]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


def help_row(parameter: Any, ctx: Any) -> tuple[str, str] | None:
    """Return name and help of an option or argument; types are TEXT, FILE or NUMBER."""
    row = parameter.get_help_record(ctx)
    if row is None:
        return None
    name, text = row
    if parameter.param_type_name == "argument":
        return name.partition(" ")[0], text
    return re.sub(r"<([^<>]*)>", lambda found: _type(found[1]), name), text


def _type(name: str) -> str:
    name = name.removeprefix("list[").removesuffix("]").removesuffix(" | None")
    if re.match(r"(int|float)\b", name):
        return "NUMBER"
    return _TYPES.get(name, name)


def _build(name: str, entry: Entry) -> Any:
    if not entry.target:
        return LazyGroup(
            name=name,
            entry=entry,
            help=entry.help,
            no_args_is_help=True,
            context_settings=SETTINGS,
            rich_markup_mode=None,
        )
    module, _, function = entry.target.partition(":")
    try:
        callback = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise UsageError(
            f"srm {name} needs the package {package}, which is not installed here",
            f"install srm from a wheel or a checkout that has src/{package}",
        ) from None
    info = CommandInfo(
        name,
        cls=CliCommand,
        callback=with_options(callback),
        help="\n".join([entry.help, "", *entry.more]),
        context_settings=SETTINGS,
    )
    command: Any = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
    command.examples = entry.examples
    return command


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the fields of its dataclasses of options as options of its own."""
    own = signature(command, eval_str=True).parameters.values()
    shared: dict[str, Any] = {one.name: one.annotation for one in own}
    shared = {name: made for name, made in shared.items() if is_dataclass(made)}

    @wraps(command)
    def run(*args: Any, **given: Any) -> None:
        for name, made in shared.items():
            given[name] = made(**{each.name: given.pop(each.name) for each in fields(made)})
        command(*args, **given)

    parameters = [one for one in own if one.name not in shared]
    for made in shared.values():
        hints = get_type_hints(made, include_extras=True)
        parameters += [
            Parameter(
                each.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if each.default is MISSING else each.default,
                annotation=hints[each.name],
            )
            for each in fields(made)
        ]
    declared = Signature(sorted(parameters, key=lambda one: one.kind))
    setattr(run, "__signature__", declared)  # noqa: B010 -- unknown to mypy
    return run


def _with_interval(args: list[str]) -> Iterator[str]:
    for at, arg in enumerate(args):
        yield arg
        if arg == "--watch" and not (at + 1 < len(args) and _is_number(args[at + 1])):
            yield f"{console.DEFAULT_WATCH_S:g}"


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return float(text) == float(text)
    return False


def _join_lists(args: list[str]) -> list[str]:
    joined: list[str] = []
    for arg in args:
        if joined and joined[-1].endswith(",") and not arg.startswith("-"):
            joined[-1] += arg
        else:
            joined.append(arg)
    return joined


_EXITS: Final = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())


def _program(name: str, epilog: str = "") -> typer.Typer:
    return typer.Typer(
        cls=type("Program", (LazyGroup,), {"entry": PROGRAMS[name]}),
        help=PROGRAMS[name].help,
        epilog=epilog,
        no_args_is_help=name != "srm-service",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=SETTINGS,
    )


app = _program(
    "srm",
    f"Exit codes: {_EXITS}. With --json an error is an object on stdout: "
    '{"error": {"type", "message", "action", "exit_code"}}; on stderr where a result is on stdout.',
)
control = _program("srm-control")
service = _program("srm-service")


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """Options before a command."""

    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            "-v",
            envvar="SRM_DEBUG",
            help="Log details, show stack traces; before or after the command.",
        ),
    ] = False
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            envvar="SRM_TIMEOUT",
            help="Time limit of the first answer of each cluster.",
        ),
    ] = patience.DEFAULT_S

    def apply(self, context: typer.Context) -> None:
        """Set them for the process, and for the clusters that the command opens."""
        console.named_file.clear()
        console.set_debug(enabled=self.debug)
        context.with_resource(patience.limit(self.timeout))


def _print_version(wanted: bool) -> None:  # noqa: FBT001 -- typer's callback signature
    if wanted:
        typer.echo(f"srm {__version__}")
        raise typer.Exit


@app.callback()
@with_options
def root(
    context: typer.Context,
    options: ProgramOptions,
    *,
    version: Annotated[  # noqa: ARG001 -- acts in its callback
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    options.apply(context)


@control.callback()
@with_options
def control_root(
    context: typer.Context, options: ProgramOptions, connection: console.ConnectionOptions
) -> None:
    options.apply(context)
    console.remember_file(connection.config)
    context.obj = connection


@service.callback(invoke_without_command=True)
def service_root(
    context: typer.Context,
    *,
    config: console.ConfigOption = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default: service.host.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; default: service.port.")
    ] = None,
) -> None:
    if context.invoked_subcommand is None:
        from srm.cli.flows.service import serve

        serve(config, host, port)


def main() -> None:
    console.end_soon_after_interrupt()
    console.run_cli(app)


def control_main() -> None:
    console.end_soon_after_interrupt()
    console.run_cli(control)


def service_main() -> None:
    console.run_cli(service)


if __name__ == "__main__":
    main()
