"""Results are what `subprocess` users know, and a timeout is what both `subprocess` and `socket` users catch."""

from __future__ import annotations

import errno
import pickle
import subprocess

import pytest

from callgate.guest.result import Result, Timeout, Usage


def test_a_result_is_a_completed_process() -> None:
    result = Result(["a"], 3, "out", "err")
    assert isinstance(result, subprocess.CompletedProcess)
    assert (result.denials, result.denials_dropped, result.truncated, result.usage) == ((), 0, False, Usage())
    with pytest.raises(subprocess.CalledProcessError) as failure:
        result.check_returncode()
    assert (failure.value.returncode, failure.value.stderr) == (3, "err")


@pytest.mark.parametrize("kind", [subprocess.TimeoutExpired, TimeoutError, OSError])
def test_a_timeout_is_caught_by_both_names(kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        raise Timeout(["sleep", "9"], 0.5, "so far", "")
    assert isinstance(caught.value, Timeout)
    assert (caught.value.cmd, caught.value.timeout, caught.value.output) == (["sleep", "9"], 0.5, "so far")
    assert caught.value.errno == errno.ETIMEDOUT
    assert str(caught.value) == "Command '['sleep', '9']' timed out after 0.5 seconds"


def test_a_timeout_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(Timeout("x", 1.0, b"o", b"e")))
    assert (copy.cmd, copy.timeout, copy.output, copy.stderr, copy.denials) == ("x", 1.0, b"o", b"e", ())
