"""Parses Java's regular expressions.

Every character class becomes a set of code points, so that the engines cannot disagree about what `\\s`, `.` or `(?i)`
mean. `headrace.sql.functions.regex` writes a parsed pattern for an engine.
"""

from __future__ import annotations

import re
from functools import lru_cache

from headrace.sql.functions.code_points import (
    CATEGORIES,
    CLASSES,
    LAST,
    LINE_ENDS,
    POSIX,
    VERTICAL,
    Ranges,
    category,
    code_points_of,
    complement,
    intersection,
    union,
    without_case,
)
from headrace.sql.functions.regex_tree import (
    MANY,
    Anchor,
    BackReference,
    Chars,
    Choice,
    Group,
    Look,
    RegexNode,
    RegexPattern,
    Repeat,
    Sequence,
)

_SIMPLE_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\x07", "e": "\x1b"}


class PatternRefused(ValueError):
    """A pattern that cannot run. The message names the construct."""


@lru_cache(maxsize=512)
def parse(pattern: str) -> RegexPattern:
    """Reads a Java pattern. Raises PatternRefused."""
    return _Parser(pattern).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.flags: frozenset[str] = frozenset()
        self.groups = 0
        self.names: dict[str, int] = {}

    def parse(self) -> RegexPattern:
        root = self.choice()
        if self.at < len(self.text):
            raise PatternRefused("a closing parenthesis without an opening one")
        return RegexPattern(root, self.groups, self.names)

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def take(self, what: str) -> bool:
        if self.text.startswith(what, self.at):
            self.at += len(what)
            return True
        return False

    def choice(self) -> RegexNode:
        flags = self.flags
        options = [self.sequence()]
        while self.take("|"):
            options.append(self.sequence())
        self.flags = flags
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self) -> RegexNode:
        parts: list[RegexNode] = []
        while self.at < len(self.text) and self.peek() not in "|)":
            if self.take("\\Q"):
                end = self.text.find("\\E", self.at)
                quoted = self.text[self.at : end if end >= 0 else len(self.text)]
                self.at = len(self.text) if end < 0 else end + 2
                parts += [self.literal(c) for c in quoted[:-1]]
                if quoted:
                    parts.append(self.quantified(self.literal(quoted[-1])))
                continue
            atom = self.atom()
            if atom is not None:
                parts.append(self.quantified(atom))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def literal(self, char: str) -> Chars:
        return self.chars(code_points_of(char))

    def chars(self, ranges: Ranges) -> Chars:
        return Chars(without_case(ranges) if "i" in self.flags else ranges)

    def quantified(self, atom: RegexNode) -> RegexNode:
        low, high = 1, 1
        if self.take("*"):
            low, high = 0, MANY
        elif self.take("+"):
            low, high = 1, MANY
        elif self.take("?"):
            low, high = 0, 1
        elif self.peek() == "{":
            counted = re.compile(r"\{(\d{1,9})(,(\d{1,9})?)?\}").match(self.text, self.at)
            if counted is None:
                raise PatternRefused("a brace that is not a quantifier")
            self.at = counted.end()
            low = int(counted[1])
            high = low if counted[2] is None else MANY if counted[3] is None else int(counted[3])
            if high < low:
                raise PatternRefused("a quantifier with its bounds in the wrong order")
        else:
            return atom
        mode = "?" if self.take("?") else "+" if self.take("+") else ""
        if self.peek() and self.peek() in "*+?":
            raise PatternRefused(f"a second quantifier {self.peek()}")
        if isinstance(atom, Anchor | Look):
            raise PatternRefused("a quantifier after a position")
        return Repeat(atom, low, high, mode)

    def atom(self) -> RegexNode | None:
        """The next part. None for flags, which only change the parser."""
        char = self.peek()
        if char == "(":
            return self.group()
        if char == "[":
            return self.chars_of_class()
        if char == "\\":
            return self.escape()
        if char in "*+?":
            raise PatternRefused(f"a quantifier {char} with nothing before it")
        if char == "{":
            raise PatternRefused("a brace that is not a quantifier")
        self.at += 1
        if char == ".":
            return Chars(((0, LAST),) if "s" in self.flags else complement(LINE_ENDS))
        if char == "^":
            return Anchor("line_start" if "m" in self.flags else "start")
        if char == "$":
            return Anchor("line_end" if "m" in self.flags else "last_line")
        return self.literal(char)

    def group(self) -> RegexNode | None:
        flags = self.flags
        self.at += 1
        node: RegexNode
        if not self.take("?"):
            self.groups += 1
            node = self._captured(self.groups)
        elif self.take(":"):
            node = Group(self.choice())
        elif self.take(">"):
            node = Group(self.choice(), atomic=True)
        elif self.take("="):
            node = Look(self.choice(), behind=False, negative=False)
        elif self.take("!"):
            node = Look(self.choice(), behind=False, negative=True)
        elif self.take("<="):
            node = Look(self.choice(), behind=True, negative=False)
        elif self.take("<!"):
            node = Look(self.choice(), behind=True, negative=True)
        elif self.peek() == "<":
            named = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>").match(self.text, self.at)
            if named is None or named[1] in self.names:
                raise PatternRefused("a group name that is missing or used twice")
            self.at = named.end()
            self.groups += 1
            self.names[named[1]] = self.groups
            node = self._captured(self.groups)
        else:
            return self.inline_flags(flags)
        return self.close(node, flags)

    def _captured(self, index: int) -> RegexNode:
        return Group(self.choice(), index)

    def close(self, node: RegexNode, flags: frozenset[str]) -> RegexNode:
        if not self.take(")"):
            raise PatternRefused("a group that is not closed")
        self.flags = flags
        return node

    def inline_flags(self, flags: frozenset[str]) -> RegexNode | None:
        found = re.compile(r"([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])").match(self.text, self.at)
        if found is None:
            raise PatternRefused("an unknown construct (?" + self.peek())
        for flag in (found[1] or "") + (found[2] or ""):
            if flag not in "ims":
                raise PatternRefused(f"the flag (?{flag})")
        self.at = found.end()
        self.flags = (flags | set(found[1])) - set(found[2] or "")
        if found[3] == ")":
            return None
        return self.close(Group(self.choice()), flags)

    def escape(self) -> RegexNode:
        char = self.text[self.at + 1 : self.at + 2]
        if char and char in "123456789":
            return self.back_reference()
        if char == "k":
            named = re.compile(r"\\k<(\w+)>").match(self.text, self.at)
            if named is None or named[1] not in self.names:
                raise PatternRefused("a reference to a group that does not exist")
            self.at = named.end()
            return self.reference(self.names[named[1]])
        anchors = {"A": "start", "z": "end", "Z": "last_line", "b": "word", "B": "no_word"}
        if char in anchors and char:
            self.at += 2
            if char == "b" and self.peek() == "{":
                raise PatternRefused("the boundary \\b{g}")
            return Anchor(anchors[char])
        if char == "R":
            self.at += 2
            crlf = Sequence((Chars(code_points_of("\r")), Chars(code_points_of("\n"))))
            return Group(Choice((crlf, Chars(VERTICAL))))
        return self.chars(self.escaped_set())

    def back_reference(self) -> RegexNode:
        self.at += 1
        number = int(self.peek())
        self.at += 1
        # Java takes a further digit only if so many groups are open before it
        while self.peek().isdigit() and number * 10 + int(self.peek()) <= self.groups:
            number = number * 10 + int(self.peek())
            self.at += 1
        if number > self.groups:
            raise PatternRefused(f"a reference to group {number}, which does not exist")
        return self.reference(number)

    def reference(self, number: int) -> RegexNode:
        if "i" in self.flags:
            raise PatternRefused("a back reference under (?i)")
        return BackReference(number)

    def escaped_set(self) -> Ranges:
        """The set after a backslash, which is the next character."""
        char = self.text[self.at + 1 : self.at + 2]
        if not char:
            raise PatternRefused("a backslash at the end")
        self.at += 2
        if char in _SIMPLE_ESCAPES:
            return code_points_of(_SIMPLE_ESCAPES[char])
        if char.lower() in CLASSES and char.isalpha():
            ranges = CLASSES[char.lower()]
            return ranges if char.islower() else complement(ranges)
        if char in "pP":
            return self.property(char == "P")
        if char == "0":
            octal = re.compile(r"[0-3]?[0-7]{1,2}").match(self.text, self.at)
            if octal is None:
                raise PatternRefused("an octal escape without digits")
            self.at = octal.end()
            return code_points_of(chr(int(octal[0], 8)))
        if char in "xu":
            form = r"\{[0-9a-fA-F]{1,6}\}|[0-9a-fA-F]{2}" if char == "x" else r"[0-9a-fA-F]{4}"
            digits = re.compile(form).match(self.text, self.at)
            point = -1 if digits is None else int(digits[0].strip("{}"), 16)
            if digits is None or point > LAST or 0xD800 <= point <= 0xDFFF:
                raise PatternRefused(f"an escape \\{char} that is not a character")
            self.at = digits.end()
            return ((point, point),)
        if char == "c" and self.peek() and ord(self.peek()) < 128:
            self.at += 1
            return code_points_of(chr(ord(self.text[self.at - 1]) ^ 64))
        if char.isalnum() and char.isascii():
            raise PatternRefused(f"the escape \\{char}")
        return code_points_of(char)

    def property(self, negative: bool) -> Ranges:
        named = re.compile(r"\{(\w+)\}|(\w)").match(self.text, self.at)
        name = "" if named is None else named[1] or named[2]
        if name not in POSIX:
            name = name.removeprefix("Is")
        if named is None or (name not in POSIX and name not in CATEGORIES):
            raise PatternRefused(f"the property \\p{{{name}}}")
        if "i" in self.flags and name in ("Lower", "Upper", "Lu", "Ll", "Lt"):
            raise PatternRefused(f"the property \\p{{{name}}} under (?i)")
        self.at = named.end()
        ranges = POSIX[name] if name in POSIX else category(name)
        return complement(ranges) if negative else ranges

    # --- classes in brackets ------------------------------------------------------------------

    def chars_of_class(self) -> Chars:
        return Chars(self.bracket())

    def bracket(self) -> Ranges:
        self.at += 1
        negative = self.take("^")
        if self.peek() == "]":
            raise PatternRefused("a class that begins with ]")
        found = self.items()
        while self.take("&&"):
            if self.peek() == "&":
                raise PatternRefused("an intersection of three &")
            if self.peek() == "[":
                other = self.bracket()
                if self.peek() != "]" and self.peek(2) != "&&":
                    raise PatternRefused("an intersection with several classes")
            else:
                other = self.items(nested=False)
            found = intersection(found, other)
        if not self.take("]"):
            raise PatternRefused("a class that is not closed")
        return complement(found) if negative else found

    def items(self, nested: bool = True) -> Ranges:
        found: list[Ranges] = []
        while self.at < len(self.text) and self.peek() != "]" and self.peek(2) != "&&":
            if self.peek() == "[":
                if not nested:
                    raise PatternRefused("an intersection with several classes")
                found.append(self.bracket())
            else:
                found.append(self.item())
        if not found:
            raise PatternRefused("an empty part of a class")
        return union(*found)

    def item(self) -> Ranges:
        start = self.at
        low = self.member()
        single = len(low) == 1 and low[0][0] == low[0][1] and not self.is_class(start)
        if self.peek() == "-" and single and self.text[self.at + 1 : self.at + 2] not in ("]", "[", ""):
            self.at += 1
            end = self.at
            high = self.member()
            if self.is_class(end) or len(high) != 1:
                raise PatternRefused("a range that ends with a class")
            if high[0][0] < low[0][0]:
                raise PatternRefused("a range with its ends in the wrong order")
            low = ((low[0][0], high[0][0]),)
        return without_case(low) if "i" in self.flags else low

    def is_class(self, start: int) -> bool:
        """True if the item at `start` is an escape for several characters."""
        return self.text[start] == "\\" and self.text[start + 1 : start + 2] in "dDwWsShHvVpP"

    def member(self) -> Ranges:
        char = self.peek()
        if char == "\\":
            if self.text[self.at + 1 : self.at + 2] in ("Q", "E", "R", "b", "B", "A", "z", "Z", "k"):
                raise PatternRefused(f"{self.peek(2)} in a class")
            return self.escaped_set()
        if char == "&" and self.peek(2) == "&&":
            raise PatternRefused("an intersection without a left side")
        self.at += 1
        return code_points_of(char)
