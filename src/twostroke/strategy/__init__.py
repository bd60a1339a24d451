"""Ways to choose that look at more than one row: beam search. Above the engine, called through core/strategy.py."""
