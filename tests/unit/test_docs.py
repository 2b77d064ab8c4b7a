"""Links between pages lead somewhere, and pages keep to the words of CONTRIBUTING."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from srm.cli.main import app, control
from srm.config.properties import literal_warnings, parse_properties
from srm.engine.moves.planning import HALTED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted(DOCS.rglob("*.md")),
]
GENERATED = {
    "client-reference.md",
    "commands.md",
    "configuration.md",
    "benchmarks.md",
    "features.md",
}
WRITTEN = [page for page in PAGES if page.name not in GENERATED and "decisions" not in page.parts]
CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
TABLES = re.compile(r"<!-- Metrics: .*?<!-- End of the metrics -->", re.DOTALL)
RULES = re.compile(r"^## Language$.*?^## ", re.DOTALL | re.MULTILINE)
AVOIDED = re.compile(
    r"\b(tells?|told|telling|asks|asked|asking|stands?|stood|(?:go|goes|went|going) on|nobody|"
    r"somebody|whoever|no one|anew|of late|so many|done without|by now|meanwhile|passed over|"
    r"beside|behind (?:it|them|what|that|which)|strange|doubt(?:s|ed)?|believed?|given up|at rest|"
    r"signs? of life|away)\b",
    re.IGNORECASE,
)


def anchors(page: Path) -> set[str]:
    """Return the names that the headings of a page have in links, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in headings}


def broken(page: Path) -> Iterator[str]:
    text = CODE.sub("", page.read_text("utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    assert list(broken(page)) == []


def test_pages_named_in_programs_and_tests_exist() -> None:
    found = subprocess.run(
        ["git", "grep", "-hoIE", r"docs/[a-z0-9-]+\.(md|json)", "--", ".", ":!CHANGELOG.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = set(found.stdout.split())

    assert len(named) > 10
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_each_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text("utf-8")

    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert sorted(name for name in pages if f"]({name})" not in index) == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_keeps_to_plain_words(page: Path) -> None:
    text = RULES.sub("", TABLES.sub("", page.read_text("utf-8")))

    assert [line for line in CODE.sub("", text).splitlines() if AVOIDED.search(line)] == []


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Return the lines of a page's code that call ``srm``, with their words."""
    for block in CODE.findall(page.read_text("utf-8")):
        if block.startswith("`") and not block.startswith("```"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            plain = re.sub(r"\s#.*| [|>].*|\[.*?\]|^\$ ", "", line.strip())
            if re.match(r"(\S*/)?srm \S", plain) and "..." not in plain:
                yield line, shlex.split(plain)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_on_a_page_exist_with_their_options(page: Path) -> None:
    assert [line for line, words in commands(page) if is_wrong(words)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_value_of_a_properties_file_on_a_page_is_used_as_it_is_meant(page: Path) -> None:
    blocks = re.findall(
        r"^```properties\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )

    found = [literal_warnings(parse_properties(block), page.name) for block in blocks]
    assert [warning for warnings in found for warning in warnings] == []


def is_wrong(words: list[str], *, is_run: bool = True) -> bool:
    """Return whether a subcommand or an option of a command does not exist."""
    command: Any = typer.main.get_command(control if words[0].endswith("control") else app)
    rest = words[1 : words.index("--")] if "--" in words else words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    takers = [command, *getattr(command, "commands", {}).values()]
    known = {"--help", *(n for taker in takers for each in taker.params for n in each.opts)}
    options = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    is_unknown = is_run if not rest else not re.match(r"[-{]|[A-Z_]+$", rest[0])
    return not options <= known or (len(takers) > 1 and is_unknown)


def quoted(path: Path) -> Iterator[str]:
    """Return the commands that texts of a program quote or consist of."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [getattr(part, "value", "") for part in parts]
        text = "".join(part if isinstance(part, str) else "{}" for part in texts)
        for one in re.findall(
            r"[`'](srm(?:-control)? [^`']+)|^(srm(?:-control)? [^`'\n]*--.*)", text
        ):
            yield "".join(one).partition("'")[0]


def test_commands_that_programs_quote_exist() -> None:
    paths = [path for name in ("src/srm", "plugins") for path in (ROOT / name).rglob("*.py")]
    found = {(path.name, line) for path in paths for line in quoted(path)}

    assert len(found) > 50
    assert [each for each in sorted(found) if is_wrong(each[1].split(), is_run=False)] == []


def test_each_finding_of_a_plan_is_explained_by_its_id() -> None:
    paths = [*(ROOT / "src/srm/engine/moves").glob("*.py"), ROOT / "src/srm/domain/moves/plan.py"]
    text = "\n".join(path.read_text("utf-8") for path in paths)
    ids = set(re.findall(r'\b(?:problem|warning)\(\s*"([a-z-]+)"', text)) | {HALTED}
    page = (DOCS / "failover.md").read_text("utf-8")

    assert len(ids) > 40
    assert sorted(one for one in ids if f"`{one}`" not in page) == []


def test_files_named_in_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()

    named = set(re.findall(r"`([\w./]+\.py|[\w./]+/)`", text))
    assert len(named) > 60
    missing = {
        name
        for name in named
        if not any(f"/{name.removeprefix('../')}" in f"/{file}" for file in files)
    }
    assert missing == set()
