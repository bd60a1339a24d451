"""The next token of every row: penalties, filters, noise, log-probabilities and stop strings.

`sampler.py` is what the engine calls; it draws natively. `reference.py` and the files it calls are the definition in
NumPy: tests hold the native draws to it token for token.
"""

from twostroke.sample.sampler import Sampler, SamplingRow, SamplingState
from twostroke.sample.stop import StopMatcher

__all__ = ["Sampler", "SamplingRow", "SamplingState", "StopMatcher"]
