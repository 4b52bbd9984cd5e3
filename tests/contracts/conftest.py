from tests.vm_fixtures import X
