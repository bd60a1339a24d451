"""Who computes what in the next step, on integers alone; time is handed in."""
