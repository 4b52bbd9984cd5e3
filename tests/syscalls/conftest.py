"""Makes the fixtures of real VMs known to the tests of this folder."""

from tests.vm_fixtures import dynamic_probe, host_dir, probe

__all__ = ["dynamic_probe", "host_dir", "probe"]
