"""Write docs/client-reference.md: the classes of ``srm.client``, from their docstrings.

python -m srm_lab.docs.client
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import srm.client
from srm_lab.docs.page import write

DEFAULT_PATH: Final = Path("docs/client-reference.md")

_HEAD: Final = """\
# Reference of srm.client

<!-- Written by `python -m srm_lab.docs.client` from the docstrings. -->

`from srm.client import FailoverConsumer, ...`. The [guide](clients.md#srmclient) says how to use
them. Calls that are not listed behave as those of confluent-kafka.
"""
_THEIRS: Final = "As confluent-kafka's"
_SECTION: Final = re.compile(r"^(Args|Raises|Returns|Yields):$")


def render() -> str:
    """Return the page."""
    lines = [line for name in srm.client.__all__ for line in _section(name)]
    return "\n".join([_HEAD, *lines, ""])


def _section(name: str) -> Iterator[str]:
    """Return the lines of one class: description, arguments, methods."""
    found = getattr(srm.client, name)
    yield f"## {name}"
    called = "" if issubclass(found, BaseException) else f"`{name}{_arguments(found)}`: "
    first, *rest = _lines(inspect.getdoc(found) or "")
    yield from (f"{called}{first}", *rest)
    yield from (
        f"* `{method}{_arguments(call)}`: {next(iter(_lines(inspect.getdoc(call) or '')))}"
        for method, call in vars(found).items()
        if inspect.isfunction(call) and not method.startswith("_")
        if not (call.__doc__ or _THEIRS).startswith(_THEIRS)
    )


def _lines(text: str) -> Iterator[str]:
    """Return paragraphs on one line each, then a list of arguments and errors."""
    plain = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    for paragraph in plain.split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if not (section := _SECTION.match(first)):
            yield " ".join(paragraph.split())
            continue
        kind = "raises " if section[1] == "Raises" else ""
        for entry in re.split(r"\n(?=    \S)", f"\n{rest}")[1:]:
            name, _, meaning = " ".join(entry.split()).partition(": ")
            yield f"* {kind}`{name}`: {meaning}"


def _arguments(call: Any) -> str:
    """Return the arguments of a call with their defaults, without types."""
    signature = inspect.signature(call)
    shown = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    kept = [p for p in shown if p.name != "self"]
    text = str(signature.replace(parameters=kept, return_annotation=signature.empty))
    return re.sub(r"<[\w -]*function (\w+)>", r"\1", text)


def main(arguments: list[str]) -> None:
    """Write the page to the given file, by default into docs/."""
    write(lambda _: render(), DEFAULT_PATH, __doc__, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
