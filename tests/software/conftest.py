"""Makes the fixtures of real VMs known to the tests of this folder."""

from tests.vm_fixtures import host_dir

__all__ = ["host_dir"]
