"""Who computes what in the next step, on integers alone: the engine and the simulator drive the same objects."""
