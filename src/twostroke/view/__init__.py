"""Facts made visible: text for a terminal, one JSON object."""
