"""What callers pass for a program, checked before it starts: an error names the argument, what was given and what belongs there.

Nothing is made of a wrong type that Python happens to take: `bytes(3)` are three NUL bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callgate.guest.result import Command

#: From here on no clock is set, in seconds: 31 years.
_FOR_EVER = 1e9


def kind(value: object) -> str:
    """The type of a value, for messages."""
    return "None" if value is None else type(value).__name__


def words(argv: Command) -> list[str | bytes]:
    """*argv* as an argument vector: a list of words, the path of a program, or a string for /bin/sh. `TypeError` for all else."""
    if isinstance(argv, str):
        return ["/bin/sh", "-c", argv]
    if isinstance(argv, os.PathLike):
        return [os.fspath(argv)]
    if isinstance(argv, bytes | bytearray | memoryview) or not isinstance(argv, Sequence):
        raise TypeError(f"argv is {kind(argv)}, not a list of words, or one str for /bin/sh -c")
    return [_word(number, word) for number, word in enumerate(argv)]


def _word(number: int, word: object) -> str | bytes:
    if isinstance(word, os.PathLike):
        path: str | bytes = os.fspath(word)
        return path
    if not isinstance(word, str | bytes):
        raise TypeError(f"argv[{number}] is {kind(word)} ({word!r:.80}): every word of a program is str, bytes or a path")
    return word


def stdin_bytes(given: Any) -> bytes:
    """*input* as bytes, None being empty. `TypeError` for what is neither text nor bytes."""
    if isinstance(given, str):
        return given.encode()
    if given is not None and not isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"input is {kind(given)}, not str or bytes")
    return bytes(given or b"")


def seconds(given: Any, what: str, *, past: bool = False) -> float | None:
    """A time limit; None for no limit, as infinity is.

    `TypeError` for what is no number, `ValueError` for NaN and, unless *past*, for a negative one.
    """
    if given is None:
        return None
    if isinstance(given, bool) or not hasattr(given, "__float__"):
        raise TypeError(f"{what} is {kind(given)}, not a number of seconds")
    if given != given:  # NaN alone
        raise ValueError(f"{what} is NaN, which is no number of seconds")
    if given < 0 and not past:
        raise ValueError(f"{what} is {given}: a number of seconds is not negative")
    if given >= _FOR_EVER:
        return None
    return given if isinstance(given, int | float) else float(given)


def path_of_vm(given: Any, what: str) -> str:
    """A path in the VM as text. `TypeError` for what is no path, `ValueError` for one that cannot be."""
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str):
        raise TypeError(f"{what} is {kind(given)}, not a path of the VM (str or os.PathLike)")
    if not path or "\0" in path:
        raise ValueError(f"{what} {path!r} is empty or holds a NUL character")
    return path


def mapping(given: Any, what: str, of: str) -> Mapping[Any, Any]:
    """*given*, None being empty. `TypeError` for what is no mapping; *of* says what it maps."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} is {kind(given)}, not a mapping of {of}")
    return given


def listener(given: Any, what: str) -> Callable[[Any], object] | None:
    """A function that is told output. `TypeError` for what cannot be called, and for an async function: nobody would await it."""
    if given is None:
        return None
    if not callable(given):
        raise TypeError(f"{what} is {kind(given)}, which cannot be called")
    import inspect

    if any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in (given, type(given).__call__)):
        raise TypeError(
            f"{what} is an async function, which would never be awaited: give a plain one, such as put_nowait of an asyncio.Queue"
        )
    return given  # type: ignore[no-any-return]  # callable, as was asked
