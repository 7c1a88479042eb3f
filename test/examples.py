"""Hypothesis's settings for all tests that import this: the same examples each time, on a machine as slow as it may be. By hand,
CACHALOT_TEST_RANDOM=1 looks for new ones."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("cachalot", derandomize="CACHALOT_TEST_RANDOM" not in os.environ, deadline=None, database=None,
                          suppress_health_check=list(HealthCheck))
settings.load_profile("cachalot")
