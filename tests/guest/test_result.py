"""Results are what `subprocess` users know, and a timeout is what both `subprocess` and `socket` users catch."""

from __future__ import annotations

import errno
import pickle
import subprocess

import pytest

from callgate.guest.result import CalledProcessError, Result, Timeout, Usage
from callgate.kernel.audit import Denial
from callgate.scopes.errors import denied

DENIAL = Denial.from_error(denied("fs", "read", "/x", rule="mode"))


def test_a_result_is_a_completed_process() -> None:
    result = Result(["a"], 3, "out", "err")
    assert isinstance(result, subprocess.CompletedProcess)
    assert (result.denials, result.denials_dropped, result.truncated, result.usage) == ((), 0, False, Usage())
    with pytest.raises(subprocess.CalledProcessError) as failure:
        result.check_returncode()
    assert (failure.value.returncode, failure.value.stderr) == (3, "err")


def test_a_result_shows_what_is_not_to_be_missed() -> None:
    assert repr(Result(["a"], 0, "", "")) == "Result(args=['a'], returncode=0, stdout='', stderr='')"
    refused = Result("a", 1, "o", "e", denials=[DENIAL], denials_dropped=4, truncated=True, exceeded=["memory"])
    shown = "Result(args='a', returncode=1, stdout='o', stderr='e', 5 denials, exceeded=('memory',), truncated=True)"
    assert repr(refused) == shown
    assert repr(Result("a", 1, b"", b"", denials=[DENIAL])).endswith("stderr=b'', 1 denial)")


def test_a_failed_check_keeps_what_may_be_the_reason() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        Result("a", -9, "o", "e", denials=[DENIAL], exceeded=["memory"]).check_returncode()
    failure = caught.value
    assert isinstance(failure, CalledProcessError)
    assert (failure.returncode, failure.cmd, failure.output, failure.stderr) == (-9, "a", "o", "e")
    assert (failure.denials, failure.exceeded) == ((DENIAL,), ("memory",))
    copy = pickle.loads(pickle.dumps(failure))
    assert (copy.args, copy.denials, copy.exceeded, str(copy)) == (failure.args, (DENIAL,), ("memory",), str(failure))
    Result("a", 0, "", "").check_returncode()


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
