"""One op list, many readers: what a model computes, and everything that walks it."""
