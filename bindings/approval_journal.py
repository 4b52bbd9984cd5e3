"""The file in which approvals are on record: a line of JSON for each step, on the disk before the step takes effect.

Lines are ``{"event": "request", "id": 1, ...}``, ``{"event": "answer", "id": 1, ...}``, ``{"event": "withdrawal", "id": 1, ...}``
and, where a crash had left half a line, ``{"event": "torn", "text": ...}`` with what was there of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from callgate.bindings.approval_requests import ApprovalJournalError
from callgate.bindings.json_text import encode

_EVENTS = ("request", "answer", "withdrawal", "torn")
_TORN_SHOWN = 4096  # characters of half a line that are kept


class Journal:
    """An open journal, which no other process and no other `Journal` has open.

    `ApprovalJournalError` if the file cannot be opened, is in use, is no regular file, or holds what no journal does. The
    caller reads `entries` once, before the first `append`, which also puts a torn last line right.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.torn = False  # whether a crash had left half a line; known once the entries were read
        self._pid = os.getpid()
        self._trouble = ""  # why nothing can be written any more
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            # For its owner alone: it holds the arguments of calls.
            self._file = open(os.open(self.path, flags, 0o600), "rb+", buffering=0)  # noqa: SIM115 - kept open
        except OSError as error:
            raise ApprovalJournalError(f"the journal of approvals {self.path} cannot be opened: {error.strerror}") from error
        try:
            self._size = self._lock()
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> int:
        fd = self._file.fileno()
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ApprovalJournalError(f"the journal of approvals {self.path} is not a regular file; give it a file of its own")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ApprovalJournalError(
                f"the journal of approvals {self.path} is in use, by another process or other Approvals of this one; "
                "close those, or give each a journal of its own"
            ) from None
        except OSError as error:
            raise ApprovalJournalError(f"the journal of approvals {self.path} cannot be locked: {error.strerror}") from error
        return os.fstat(fd).st_size  # not what it was before the lock

    def entries(self) -> Iterator[dict[str, Any]]:
        """What is on record, in its order."""
        end = 0
        rest = b""
        with open(self._file.fileno(), "rb", closefd=False) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    rest = line
                    break
                end += len(line)
                yield self._entry(number, line)
        if rest:
            self.torn = True
            self._cut(end)
            self.append({"event": "torn", "text": rest.decode("utf-8", "replace")[:_TORN_SHOWN]})
        self._sync_folder()

    def _entry(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            # Not by the rules for what guests send: an entry holds a guest's arguments, and so lies deeper than they may.
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise self._foreign(number, "it is not JSON") from None
        if not isinstance(entry, dict) or entry.get("event") not in _EVENTS:
            raise self._foreign(number, "it records no event")
        if entry["event"] != "torn" and type(entry.get("id")) is not int:
            raise self._foreign(number, "it has no id")
        return entry

    def _foreign(self, number: int, what: str) -> ApprovalJournalError:
        return ApprovalJournalError(
            f"{self.path} is no journal of approvals, or something else has written to it: line {number}: {what}; move it away"
        )

    def append(self, *entries: dict[str, Any]) -> None:
        """Put entries on record: all of them are on the disk afterwards.

        After an `ApprovalJournalError` none is, and the message, which guests may see, does not say where the journal lies.
        """
        if os.getpid() != self._pid:
            raise ApprovalJournalError("the journal of approvals belongs to the process that opened it, not to its children")
        if self._trouble:
            raise ApprovalJournalError(self._trouble)
        data = b"".join(encode(entry) + b"\n" for entry in entries)
        try:
            written = os.write(self._file.fileno(), data)
        except OSError as error:
            self._cut(self._size)
            raise ApprovalJournalError(f"the journal of approvals cannot be written: {error.strerror}") from error
        if written < len(data):
            self._cut(self._size)
            raise ApprovalJournalError("the journal of approvals cannot be written: there is no room for all of it")
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            # What then is on the disk is not known, and a second fsync that succeeds would not tell (fsync(2)).
            self._trouble = f"the journal of approvals failed to reach the disk: {error.strerror}; open it anew to go on"
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._size)
            raise ApprovalJournalError(self._trouble) from error
        self._size += len(data)

    def _cut(self, size: int) -> None:
        """Take away what was written in part."""
        self._size = size
        try:
            os.ftruncate(self._file.fileno(), size)
        except OSError as error:
            self._trouble = f"the journal of approvals ends in half a line that cannot be taken away: {error.strerror}"

    def _sync_folder(self) -> None:
        """Have the file's name on the disk as well, which may be new."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ApprovalJournalError(f"the folder of the journal {self.path} cannot be synced: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the file and its lock. Again: nothing."""
        self._trouble = self._trouble or "the journal of approvals is closed"
        if not self._file.closed:
            if os.getpid() == self._pid:
                fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)  # a forked child would hold on to it
            self._file.close()
