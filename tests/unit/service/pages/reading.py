"""What a screen reader, and the network, would find on a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

_VOID: Final = {"meta", "link", "input", "br", "wbr", "img", "hr"}


class Outline(HTMLParser):
    """A page taken apart; it fails where tags are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.links: list[str] = []
        self.copied: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.styled: list[str] = []
        self.inline_scripts = 0
        self.headings: list[str] = []
        self.unscoped = 0
        self.unnamed = 0
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        is_part = tag in {"a", "wbr"} or named.get("class") == "whole"
        self.text += "" if is_part else " "
        if "id" in named:
            self.ids.append(named["id"])
        if "style" in named or any(name.startswith("on") for name in named):
            self.styled.append(tag)
        if "data-copy" in named:
            self.copied.append(named["data-copy"])
        if tag == "a":
            self.links.append(named["href"])
        if tag in {"link", "script", "img", "iframe"}:
            self.loaded.append(named.get("href") or named.get("src") or "")
            self.inline_scripts += tag == "script" and "src" not in named
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)
        if tag == "th" and "scope" not in named:
            self.unscoped += 1
        if tag == "svg" and not {"aria-hidden", "aria-label"} & named.keys() and "x" not in named:
            self.unnamed += 1
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def words(self) -> str:
        """The text with single spaces."""
        return " ".join(self.text.split())


def words(page: str) -> str:
    """Return what people read on a page."""
    return Outline(page).words
