"""The glob automaton equals a matcher that follows the grammar letter by letter."""

from functools import lru_cache

from hypothesis import example, given
from hypothesis import strategies as st

from callgate.scopes.glob import compile_glob, covers

PIECES = ["/", "*", "**", "?", "a", "b", ".", "é", "/**/", "/**", "/*/", "\udcff"]
GLOBS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map("".join)
SUBJECTS = st.text(alphabet="//aab.é\udcff", max_size=10)


@lru_cache(maxsize=100_000)
def reference(pattern: str, subject: str) -> bool:
    """The grammar of SPEC section 2, one rule per line, by backtracking."""
    if pattern == "":
        return subject == ""
    stars = len(pattern) - len(pattern.lstrip("*"))
    if stars:
        rest = pattern[stars:]
        reach = len(subject) if stars > 1 else (subject + "/").index("/")
        return any(reference(rest, subject[i:]) for i in range(reach + 1))
    if pattern.startswith("/**"):
        rest = pattern[1:].lstrip("*")
        if rest == "":
            return subject == "" or subject.startswith("/")
        if rest.startswith("/"):
            return reference(rest, subject) or (
                subject.startswith("/") and any(reference(rest, subject[i:]) for i in range(1, len(subject)))
            )
    if subject == "" or (subject[0] == "/" if pattern[0] == "?" else subject[0] != pattern[0]):
        return False
    return reference(pattern[1:], subject[1:])


def grammar(pattern: str, subject: str) -> bool:
    return pattern == "*" or reference(pattern, subject)


@given(GLOBS, SUBJECTS)
@example("/a/**/**", "/a")
@example("/**/**/b", "/b")
@example("/**/*b", "/ab")
@example("/*/**/a", "/a/a")
@example("*/**", "a")
def test_the_automaton_follows_the_grammar(pattern: str, subject: str) -> None:
    assert compile_glob(pattern).matches(subject) == grammar(pattern, subject)


@given(GLOBS, SUBJECTS, SUBJECTS)
def test_feeding_a_text_in_two_pieces_is_feeding_it_whole(pattern: str, first: str, second: str) -> None:
    glob = compile_glob(pattern)
    whole = glob.feed(glob.start(), first + "/" + second)
    assert glob.feed(glob.feed(glob.start(), first), "/" + second) == whole
    assert not (glob.universal(whole) and not glob.matches(first + "/" + second))
    assert not (whole == 0 and glob.matches(first + "/" + second))


@given(GLOBS, GLOBS, SUBJECTS)
def test_a_glob_that_covers_another_matches_whatever_it_matches(wide: str, narrow: str, subject: str) -> None:
    if covers(wide, narrow) and grammar(narrow, subject):
        assert grammar(wide, subject)


@given(GLOBS, SUBJECTS)
def test_every_match_begins_with_the_prefix(pattern: str, subject: str) -> None:
    glob = compile_glob(pattern)
    if glob.matches(subject):
        assert subject.startswith(glob.prefix)
