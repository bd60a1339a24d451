"""The next token of every row: penalties, filters, noise, log-probabilities and stop strings. NumPy only."""

from twostroke.sample.sampler import Sampler, SamplingRow, SamplingState
from twostroke.sample.stop import StopMatcher

__all__ = ["Sampler", "SamplingRow", "SamplingState", "StopMatcher"]
