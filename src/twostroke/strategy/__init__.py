"""Ways to choose that look at more than one row: beam search, drafts. Called by the engine through core/strategy.py."""
