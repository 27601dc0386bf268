"""Settings of every test run: hypothesis looks for new examples at home and repeats the same ones in CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("home", deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=_SLOW_IS_FINE)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "home")
