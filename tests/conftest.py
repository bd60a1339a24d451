"""Settings every test runs under; data comes from builders, not from fixtures."""

from hypothesis import settings

# Derandomised: a red run is red for everybody. No deadline: two cores are shared with compilers.
settings.register_profile("twostroke", derandomize=True, deadline=None, database=None)
settings.load_profile("twostroke")
