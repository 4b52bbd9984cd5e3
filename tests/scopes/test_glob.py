"""The glob language: what each wildcard covers, on which characters, and at what cost."""

from collections.abc import Iterator, Mapping

import pytest

from callgate.scopes.glob import Glob, compile_glob, covers

LONGEST_SUBJECT = 4096


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("/a/*/c", ["/a/b/c", "/a//c"], ["/a/c", "/a/b/b/c", "/a/b/c/", "x/a/b/c"]),
        ("/b/?.txt", ["/b/a.txt", "/b/é.txt"], ["/b/.txt", "/b/ab.txt", "/b//.txt"]),
        ("/d/**/z", ["/d/z", "/d/a/z", "/d/a/b/z"], ["/dz", "/d/az", "/d/z/a"]),
        ("/e**", ["/e", "/ef", "/e/f/g"], ["/", "/x"]),
        ("/w/**/.env", ["/w/.env", "/w/a/.env"], ["/w/a.env", "/w/.env/a"]),
        ("/**/.ssh/**", ["/.ssh", "/a/.ssh", "/a/.ssh/id", "/a/b/.ssh/c/d"], ["/a.ssh", "/a/.sshx"]),
        ("/v/**", ["/v", "/v/", "/v/a", "/v/a/b"], ["/", "/va", "/v.", "/w/v"]),
        ("/**", ["/", "/a", "/a/b"], ["a", "a/"]),
        ("/a/**/**", ["/a", "/a/b", "/a/b/c"], ["/ab"]),
        ("/a/**/**/z", ["/a/z", "/a/b/z", "/a/b/c/z"], ["/az"]),
        ("/a/***/z", ["/a/z", "/a/b/c/z"], ["/az"]),
        ("/a*/**", ["/a", "/ab", "/ab/c"], ["/b", "/b/a"]),
        ("*", ["", "a", "a/b", "/"], []),
        ("**", ["", "a", "a/b", "/"], []),
        ("*x", ["x", "ax"], ["a/x", "xa"]),
        ("a?", ["ab", "a*"], ["a", "a/", "abc"]),
        ("/g/x[1]", ["/g/x[1]"], ["/g/x1", "/g/x"]),
        ("/{a,b}", ["/{a,b}"], ["/a", "/b"]),
        ("a\\*", ["a\\", "a\\b"], ["a*", "a"]),
        ("exact", ["exact"], ["Exact", "exac", "exactl", ""]),
    ],
)
def test_wildcards_cover_what_the_grammar_says(pattern: str, matching: list[str], other: list[str]) -> None:
    glob = compile_glob(pattern)
    assert [subject for subject in matching if not glob.matches(subject)] == []
    assert [subject for subject in other if glob.matches(subject)] == []


def test_a_question_mark_is_one_character_however_many_bytes_it_has() -> None:
    assert compile_glob("a?b").matches("a\N{GRINNING FACE}b")
    assert not compile_glob("a??b").matches("a\N{GRINNING FACE}b")


def test_a_byte_that_is_not_utf8_is_a_character_of_its_own() -> None:
    subject = b"/x/\xff\xfe".decode("utf-8", "surrogateescape")
    assert compile_glob("/x/??").matches(subject)
    assert not compile_glob("/x/?").matches(subject)


def test_escaped_bytes_that_spell_a_character_are_that_character() -> None:
    assert compile_glob("\udcc3\udca9").matches("é")
    assert compile_glob("é").matches("\udcc3\udca9")
    assert compile_glob("?").matches("\udcc3\udca9")


def test_a_subject_that_no_bytes_decode_to_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        compile_glob("a*").matches("a\ud800")


def test_an_empty_glob_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        compile_glob("")


class CountingTable(Mapping[str, int]):
    """A transition table that counts how often it is asked."""

    def __init__(self, table: Mapping[str, int]) -> None:
        self.table = table
        self.lookups = 0

    def __getitem__(self, character: str) -> int:
        self.lookups += 1
        return self.table[character]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


@pytest.mark.parametrize("pattern", ["*a" * 100, "**a" * 66, "?*" * 100, "/**/a" * 40, "**?a*" * 40, "a" * 100 + "*a" * 50])
@pytest.mark.parametrize("subject", ["a" * LONGEST_SUBJECT, "/a" * (LONGEST_SUBJECT // 2), "a" * 4095 + "b"])
def test_no_pattern_takes_more_than_one_step_per_character(pattern: str, subject: str) -> None:
    glob = Glob(pattern)
    table = CountingTable(glob._advance)  # pyright: ignore[reportPrivateUsage]
    glob._advance = table  # type: ignore[assignment]
    glob.matches(subject)
    # One step is a handful of operations on integers of that many bits.
    assert table.lookups <= len(subject)
    assert glob.states <= len(pattern) + 1


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("**", "/a"),
        ("*", "x"),
        ("/a/**", "/a"),
        ("/a/**", "/a/b/*"),
        ("/a/**", "/a/b/**"),
        ("/**/v/**", "/a/v/**"),
        ("/a/**", "/a/**"),
        ("/a/*", "/a/b"),
        ("tcp://h:*", "tcp://h:80"),
    ],
)
def test_covers_finds_the_plain_cases(wide: str, narrow: str) -> None:
    assert covers(wide, narrow)


@pytest.mark.parametrize(
    ("wide", "narrow"), [("/a/**", "/ab"), ("/a/*", "/a/**"), ("/a/*", "/a/*/c"), ("/a", "/a/**"), ("a*", "**")]
)
def test_covers_does_not_invent_cases(wide: str, narrow: str) -> None:
    assert not covers(wide, narrow)
