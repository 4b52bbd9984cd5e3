"""The one glob language of all scopes, matched in linear time by an automaton whose state is the bits of one integer.

    ?     one character other than "/"          /**/          also a single "/"
    *     any run of characters other than "/"  X/**  at the end: also X itself
    **    any run of characters                 *     alone: everything

Anchored at both ends; no classes, braces or escapes (SPEC section 2, LEDGER A5). A character is one code point. Paths are
bytes: they come decoded with surrogateescape, so a byte that is not UTF-8 is a character of its own. kernel/native/glob.c
is the same automaton over bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

# The tokens: any other string is a literal character. A skip stands after the first "/" of "/**/" and moves for free to
# the ** after it, and past that ** and its "/". Neighbouring wildcards become one token, so that free moves chain at most
# as skip, star, next: Glob._closed relies on it.
_ANY: Final = "?"
_STAR: Final = "*"
_GLOBSTAR: Final = "**"
_SKIP: Final = "/**/"


class Glob:
    """A compiled glob. Immutable; made by `compile_glob`.

    ``prefix`` is the literal beginning that every match has. Besides `matches` the automaton itself can be stepped
    (`start`, `feed`, `universal`), which answers questions about all subjects that begin alike.
    """

    __slots__ = (
        "_accept",
        "_advance",
        "_any",
        "_end",
        "_exact",
        "_prefix_tokens",
        "_skip",
        "_star",
        "_stay",
        "prefix",
        "states",
        "text",
    )

    def __init__(self, text: str) -> None:
        tokens, early_accept = _parse(text)
        self.text = text
        self.states = len(tokens) + 1
        self._end = 1 << len(tokens) - 1 if tokens[-1] == _GLOBSTAR else 0
        self._accept = 1 << len(tokens) | early_accept
        self._any = _bits(tokens, _ANY)
        self._skip = _bits(tokens, _SKIP)
        globstar = _bits(tokens, _GLOBSTAR)
        self._star = _bits(tokens, _STAR) | globstar
        self._stay = {"/": globstar}
        literals = {token for token in tokens if token not in (_ANY, _STAR, _GLOBSTAR, _SKIP)}
        self._advance = {token: _bits(tokens, token) | (self._any if token != "/" else 0) for token in literals}
        self._advance.setdefault("/", 0)
        self._prefix_tokens = next((i for i, token in enumerate(tokens) if token not in literals), len(tokens))
        # In "X/**" the "/" is optional.
        if early_accept and early_accept << 1 == 1 << self._prefix_tokens:
            self._prefix_tokens -= 1
        self.prefix = "".join(tokens[: self._prefix_tokens])
        self._exact = self._prefix_tokens == len(tokens)

    def __repr__(self) -> str:
        return f"compile_glob({self.text!r})"

    @property
    def everything(self) -> bool:
        """True when every subject matches."""
        return self.states == 2 and bool(self._end)

    def matches(self, subject: str) -> bool:
        """True when the whole subject matches. ValueError for a subject that no bytes can decode to."""
        if self.everything:
            return True
        subject = canonical_text(subject)
        if self._exact:
            return subject == self.prefix
        if not subject.startswith(self.prefix):
            return False
        state = self._run(self._closed(1 << self._prefix_tokens), subject[len(self.prefix) :])
        return bool(state & self._accept)

    def start(self) -> int:
        """The state before the first character."""
        return self._closed(1)

    def feed(self, state: int, text: str) -> int:
        """The state after some more characters. 0 means that no continuation can match; more bits match at least as much."""
        return self._run(state, canonical_text(text))

    def universal(self, state: int) -> bool:
        """True when everything matches from this state on, whatever follows."""
        return bool(state & self._end)

    def _closed(self, state: int) -> int:
        skips = state & self._skip
        state |= skips << 1 | skips << 3
        return state | (state & self._star) << 1

    def _run(self, state: int, text: str) -> int:
        advance, advance_other, stay, stay_other = self._advance, self._any, self._stay, self._star
        skip, star = self._skip, self._star
        for character in text:
            state = (state & advance.get(character, advance_other)) << 1 | state & stay.get(character, stay_other)
            if not state:
                return 0
            skips = state & skip
            if skips:
                state |= skips << 1 | skips << 3
            state |= (state & star) << 1
        return state


@lru_cache(maxsize=8192)
def compile_glob(text: str) -> Glob:
    """The compiled form of a glob; ValueError if it is empty. Compiled globs are kept, for policies repeat them."""
    if not text:
        raise ValueError("an empty glob matches nothing")
    return Glob(_GLOBSTAR if text == _STAR else canonical_text(text))


def canonical_text(text: str) -> str:
    """Text as its bytes decode: a code point that was spelled as escaped bytes becomes that code point."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def covers(wide: str, narrow: str) -> bool:
    """True only if every subject that ``narrow`` matches is matched by ``wide`` too. May miss a case, never invents one."""
    outer, inner = compile_glob(wide), compile_glob(narrow)
    if outer.everything or outer.text == inner.text:
        return True
    if inner.text == inner.prefix:
        return outer.matches(inner.text)
    if outer.universal(outer.feed(outer.start(), inner.prefix)):
        return True
    # "X/**" is X and everything below it, "X/" followed by anything.
    below = inner.prefix + "/"
    return inner.text == below + _GLOBSTAR and outer.matches(inner.prefix) and outer.universal(outer.feed(outer.start(), below))


def _bits(tokens: list[str], wanted: str) -> int:
    return sum(1 << i for i, token in enumerate(tokens) if token == wanted)


def _star_run(text: str, at: int) -> int:
    end = at
    while text.startswith("*", end):
        end += 1
    return end - at


def _past_globstar_components(text: str, at: int) -> int:
    """Where the "/**" components that begin at ``at`` end, each followed by "/" or the end; ``at`` if there are none."""
    while text.startswith("/**", at):
        end = at + 1 + _star_run(text, at + 1)
        if end < len(text) and text[end] != "/":
            break
        at = end
    return at


def _parse(text: str) -> tuple[list[str], int]:
    """The tokens, and the bit of the state before a trailing "/**", which accepts too (0 if there is none)."""
    tokens: list[str] = []
    at = 0
    while at < len(text):
        past = _past_globstar_components(text, at)
        if at < past == len(text):
            early_accept = 1 << len(tokens)
            return [*tokens, "/", _GLOBSTAR], early_accept
        if past > at:
            tokens += ["/", _SKIP, _GLOBSTAR, "/"]
            at = past + 1
        elif text[at] == "*":
            run = _star_run(text, at)
            tokens.append(_GLOBSTAR if run > 1 else _STAR)
            at += run
        else:
            tokens.append(text[at])
            at += 1
    return tokens, 0
