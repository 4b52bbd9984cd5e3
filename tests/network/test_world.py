"""The claims of claims.py, each checked in a network of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.network.claims import CLAIMS

pytestmark = pytest.mark.vm


def _private() -> list[str]:
    """How to get network and mount namespaces that one may change: root as it is, others in a user namespace, as themselves."""
    apart = ["unshare", "--mount", "--net", "--propagation", "private"]
    return apart if os.geteuid() == 0 else [*apart, "--user", "--map-current-user", "--keep-caps"]


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim(claim: str) -> None:
    for program in ("ip", "nsenter", "setpriv"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    command = [*_private(), "--", sys.executable, "-m", "tests.network.world", claim]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
