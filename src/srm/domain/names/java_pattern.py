r"""Java's regular expressions, which lists of topics and groups contain, for Python.

Python reads some of them otherwise (``[a-z&&[^x]]``, ``\Q``, ``\p``, ``\d``) and has no others.
Each construct is translated exactly, or refused with its place. Groups do not capture, so that
entries can be joined.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final

from srm.errors import ConfigError

_LINE_ENDS: Final = r"\n\r\x85\u2028\u2029"
_ANY: Final = r"[\s\S]"
_END: Final = r"(?:\Z|(?=(?:\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n)\Z))"
_ANCHORS: Final = {"b": r"\b", "B": r"(?!\b)", "A": r"\A", "G": r"\A", "Z": _END, "z": r"\Z"}
_SETS: Final = {
    "d": "0-9",
    "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "s": r" \t-\r",
    "v": r"\n-\r\x85\u2028\u2029",
    "w": "a-zA-Z0-9_",
}
_PROPERTIES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "ASCII": r"\x00-\x7f",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Space": r" \t-\r",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Punct": r"!-/:-@\[-`{-~",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CATEGORY: Final = re.compile(r"(?:Is|gc=|general_category=)?([CLMNPSZ][a-z]?|LC)")
_INSTEAD: Final = {
    **dict.fromkeys("123456789k", "write the repeated text, or a pattern without a reference"),
    "E": r"remove it, or begin the quotation with \Q",
    "N": r"use \x{h..h}",
    "R": r"use [\n\r]",
    "X": "use a dot",
}
_COMMA: Final = "close it; a comma ends an entry, so write {}"


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A pattern in Python's notation; each name that it matches begins with ``prefix``.

    ``is_literal``: it matches no name but ``prefix``.
    """

    python: str
    prefix: str
    is_literal: bool


def parse(pattern: str) -> JavaPattern:
    """Translate one pattern; ConfigError for what Java refuses or Python cannot express."""
    return _Parser(pattern).pattern()


@dataclass(frozen=True, slots=True)
class _Token:
    """One character at a place; ``mark`` is a backslash before it, or Q inside a quotation."""

    text: str
    place: int
    mark: str = ""

    def is_plain(self, text: str) -> bool:
        return not self.mark and self.text != "" and self.text in text


def _tokens(pattern: str) -> list[_Token]:
    found, at = list[_Token](), 0
    while at < len(pattern):
        place = at + 1
        if pattern[at] != "\\" or place == len(pattern):
            found.append(_Token(pattern[at], place))
            at += 1
        elif pattern[place] != "Q":
            found.append(_Token(pattern[place], place, "\\"))
            at += 2
        else:
            end = pattern.find("\\E", at + 2)
            end = len(pattern) if end < 0 else end
            found += (_Token(pattern[n], n + 1, "Q") for n in range(at + 2, end))
            at = end + 2
    return found


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._tokens = _tokens(pattern)
        self._at = 0
        self._flags = frozenset[str]()
        self._names = set[str]()

    def pattern(self) -> JavaPattern:
        parts, prefix, is_literal, is_open = list[str](), "", True, True
        while token := self._peek():
            if token.is_plain(")"):
                raise self._error("unmatched )", token, r"write \)")
            if self._accept("|"):
                parts.append("|")
                prefix, is_literal, is_open = "", False, False
                continue
            part, literal = self._part()
            parts.append(part)
            is_literal = is_literal and literal is not None
            is_open = is_open and literal is not None
            prefix += literal or "" if is_open else ""
        return JavaPattern("".join(parts), prefix, is_literal)

    def _peek(self, ahead: int = 0) -> _Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _is_at(self, characters: str, ahead: int = 0) -> bool:
        token = self._peek(ahead)
        return token is not None and token.is_plain(characters)

    def _accept(self, characters: str) -> str:
        token = self._peek()
        if token is None or not token.is_plain(characters):
            return ""
        self._at += 1
        return token.text

    def _run(self, characters: str, most: int = sys.maxsize) -> str:
        found = ""
        while len(found) < most and (one := self._accept(characters)):
            found += one
        return found

    def _error(self, what: str, token: _Token, instead: str) -> ConfigError:
        return ConfigError(
            f"{self._pattern!r} is not a regular expression that srm can use: {what} at character "
            f"{token.place}; {instead}"
        )

    def _part(self) -> tuple[str, str | None]:
        """Return a part with its repetitions, and the only text that it matches, else None."""
        part, literal = self._atom()
        token = self._peek()
        if token is None or not token.is_plain("*+?{"):
            return part, literal
        if literal == "":
            is_variable = token.text == "{" and self._tokens[self._at - 1].is_plain("$")
            of = "a variable needs its provider in config.providers" if is_variable else "remove it"
            raise self._error(f"repeated nothing, {token.text}", token, of)
        how = self._accept("*+?") or self._count(token)
        how += self._accept("?+")
        if (again := self._peek()) and again.is_plain("*+?{"):
            raise self._error(f"second repetition {again.text}", again, "put the first into (...)")
        return part + how, None

    def _count(self, opening: _Token) -> str:
        self._at += 1
        least, comma = self._run("0123456789"), self._accept(",")
        most = self._run("0123456789")
        if not least or not self._accept("}"):
            hint = _COMMA.format("x{1,3} as xx?x?") if least else r"write {3}, or \{"
            raise self._error("unclosed {" if least else "{ without a number", opening, hint)
        if most and int(most) < int(least):
            raise self._error(f"{least} is above {most}", opening, "exchange them")
        return f"{{{least}{comma}{most}}}"

    def _atom(self) -> tuple[str, str | None]:
        token = self._next()
        if token.mark == "\\" and token.text.isascii() and token.text.isalnum():
            return self._escape(token)
        if token.is_plain("("):
            return self._group(token)
        if token.is_plain("["):
            return self._class(token)
        if token.is_plain("."):
            return (_ANY if "s" in self._flags else f"[^{_LINE_ENDS}]"), None
        if token.is_plain("^$"):
            return (r"\A" if token.text == "^" else _END), ""
        if token.is_plain("*+?{\\"):
            what = "{ without a number" if token.text == "{" else f"lone {token.text}"
            instead = f".{token.text} for any signs, or " if token.text in "*+" else ""
            raise self._error(what, token, f"write {instead}\\{token.text}")
        return self._letter(token.text)

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _letter(self, text: str) -> tuple[str, str | None]:
        folded = "i" in self._flags and text.isascii() and text.isalpha()
        return self._fold(re.escape(text)), None if folded else text

    def _fold(self, part: str) -> str:
        return f"(?ai:{part})" if "i" in self._flags else part

    def _escape(self, token: _Token) -> tuple[str, str | None]:
        if token.text in _ANCHORS:
            if self._is_at("{"):
                raise self._error(f"\\{token.text}{{", token, f"use \\{token.text} alone")
            return _ANCHORS[token.text], ""
        found = self._set(token)
        return self._letter(self._character(token)) if found is None else (found, None)

    def _set(self, token: _Token) -> str | None:
        """Return the class that an escape names, None if it names one character."""
        is_escape = token.mark == "\\"
        if is_escape and token.text in "pP":
            inside = self._property(token)
        elif is_escape and token.text.lower() in _SETS:
            inside = _SETS[token.text.lower()]
        else:
            return None
        return self._fold(f"[{'^' if token.text.isupper() else ''}{inside}]")

    def _property(self, token: _Token) -> str:
        name, closed = "", self._accept("{") == ""
        while (part := self._peek()) and not closed and not part.mark:
            self._at += 1
            closed = part.text == "}"
            name += "" if closed else part.text
        if not name and self._peek():
            name = self._next().text
        if inside := _PROPERTIES.get(name):
            return inside
        if known := _CATEGORY.fullmatch(name):
            of_case = "i" in self._flags and known[1] in {"Lu", "Ll", "Lt"}
            if inside := _category("LC" if of_case else known[1]):
                return inside
        raise self._error(f"\\{token.text}{{{name}}}", token, "write the characters: [A-Za-z]")

    def _character(self, token: _Token) -> str:
        """Return the character that a token means, outside and inside of classes."""
        text = token.text
        if token.mark != "\\" or not (text.isascii() and text.isalnum()):
            return text
        if text in _CONTROLS:
            return _CONTROLS[text]
        digits, base = "", 16
        if text == "0":
            first = self._run("01234567", 1)
            digits, base = first + self._run("01234567", 2 if first in "0123" else 1), 8
        elif text == "u":
            digits = self._run("0123456789abcdefABCDEF", 4)
            digits = digits if len(digits) == 4 else ""
        elif text == "x" and self._accept("{"):
            digits = self._run("0123456789abcdefABCDEF")
            digits = digits if self._accept("}") else ""
        elif text == "x":
            digits = self._run("0123456789abcdefABCDEF", 2)
            digits = digits if len(digits) == 2 else ""
        elif text == "c" and self._peek():
            digits, base = str(ord(self._next().text) ^ 64), 10
        else:
            instead = _INSTEAD.get(text, f"remove the backslash, or write \\\\{text}")
            raise self._error(f"\\{text}", token, instead)
        point = int(digits, base) if digits else sys.maxunicode + 1
        if point > sys.maxunicode or 0xD800 <= point < 0xE000:
            instead = r"use \xhh, \x{h..h} or \0nnn"
            raise self._error(f"\\{text} without a character's number", token, instead)
        return chr(point)

    def _group(self, opening: _Token) -> tuple[str, str | None]:
        outside, head, literal = self._flags, "(?:", None
        if self._accept("?"):
            head = self._group_kind(opening)
        if not head:
            return "", ""
        if head in {"(?=", "(?!", "(?<=", "(?<!"}:
            literal = ""
        parts = []
        while not self._accept(")"):
            if not self._peek():
                raise self._error("unclosed (", opening, _COMMA.format("(a,b) as (a|b)"))
            parts.append(self._accept("|") or self._part()[0])
        self._flags = outside
        return f"{head}{''.join(parts)})", literal

    def _group_kind(self, opening: _Token) -> str:
        """Return Python's beginning of a group, nothing for flags of what follows."""
        kind = self._accept(":=!>")
        if not kind and self._accept("<"):
            if kind := self._accept("=!"):
                return f"(?<{kind}"
            name = self._name()
            if name[:1].isalpha() and self._accept(">") and name not in self._names:
                self._names.add(name)
                return "(?:"
            raise self._error("group without a name of its own", opening, "write (?<name>...)")
        if kind:
            return f"(?{kind}"
        on, off = self._name(), self._name() if self._accept("-") else ""
        closing = self._accept("):")
        if not closing or {*on} - {*"is"} or {*off} - {*"idmsuxU"}:
            raise self._error(f"(?{on}", opening, "the flags are i and s; groups begin with (?:")
        self._flags = self._flags | {*on} if not off else (self._flags | {*on}) - {*off}
        return "(?:" if closing == ":" else ""

    def _name(self) -> str:
        name = ""
        while (token := self._peek()) and not token.mark and token.text.isascii():
            if not token.text.isalnum():
                break
            name += self._next().text
        return name

    def _class(self, opening: _Token) -> tuple[str, str | None]:
        start = self._at
        part = self._union(opening)
        one = self._tokens[start : self._at - 1]
        is_one = len(one) == 1 and not one[0].mark
        return (part, None) if not is_one else self._letter(one[0].text)

    def _union(self, opening: _Token, *, bracketed: bool = True) -> str:
        """Read a class up to its bracket, or one side of an intersection up to the same one.

        It becomes a regular expression of one character.
        """
        negated = bracketed and self._accept("^") != ""
        ranges, others = "", list[str]()
        while not (self._is_at("]") and (ranges or others)):
            token = self._peek()
            if token is None:
                raise self._error("unclosed [", opening, _COMMA.format("[a,b] as [ab]"))
            if self._is_at("&") and self._is_at("&", 1):
                left = self._either(ranges, others)
                ranges, others = "", [self._intersection(left, opening)]
            elif self._accept("["):
                others.append(self._union(token))
            elif (found := self._set_in_class()) is not None:
                others.append(found)
            else:
                ranges += self._range()
        self._at += bracketed
        if negated and not others:
            return self._fold(f"[^{ranges}]")
        found = self._either(ranges, others)
        return f"(?:(?!{found}){_ANY})" if negated else found

    def _either(self, ranges: str, others: list[str]) -> str:
        parts = [*([self._fold(f"[{ranges}]")] if ranges else []), *others]
        return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})" if parts else ""

    def _intersection(self, left: str, opening: _Token) -> str:
        sign, right = self._next(), list[str]()
        self._at += 1
        while not self._is_at("]&"):
            token = self._peek() or opening
            is_class = self._accept("[") != ""
            right.append(self._union(token, bracketed=is_class))
        lone = self._is_at("&") and not self._is_at("&", 1)
        if not left or not right or lone:
            raise self._error(
                "&& without two sides", sign, "write [a-z&&[^x]], or \\& for the sign"
            )
        return f"(?:(?={left}){self._either('', right)})"

    def _set_in_class(self) -> str | None:
        token = self._next()
        found = self._set(token)
        if found is None:
            self._at -= 1
        return found

    def _range(self) -> str:
        token = self._next()
        low = high = self._character(token)
        if self._is_at("-") and self._peek(1) and not self._is_at("[]", 1):
            self._at += 1
            high = self._character(self._next())
            if high < low:
                raise self._error(f"{low}-{high}", token, "exchange them")
        return re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"


@lru_cache
def _category(name: str) -> str:
    """Return the inside of a class with the characters of a general category of Unicode."""
    of = ("Lu", "Ll", "Lt") if name == "LC" else (name,)
    found = ""
    points = range(sys.maxunicode + 1)
    for inside, run in groupby(points, lambda n: unicodedata.category(chr(n)).startswith(of)):
        if inside:
            first, *_, last = (points_of := [*run])[0], points_of[-1]
            found += f"\\U{first:08x}-\\U{last:08x}"
    return found
