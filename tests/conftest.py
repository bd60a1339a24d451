"""Settings every test runs under; data comes from builders, not from fixtures."""

import os

from hypothesis import settings

# Before the first import of NumPy. The matrices of tests are tiny: threads would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Derandomised: a red run is red for everybody. No deadline: two cores are shared with compilers.
settings.register_profile("twostroke", derandomize=True, deadline=None, database=None)
settings.load_profile("twostroke")
