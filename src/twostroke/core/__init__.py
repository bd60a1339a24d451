"""Plain facts every room shares: requests, sequences, steps, events, time. Standard library only."""
