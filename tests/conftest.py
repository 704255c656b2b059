"""For all tests: property tests are judged by what they find, not by how busy the machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("hipwright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hipwright")
