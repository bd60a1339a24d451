"""KV cache as integers: which block holds which positions of which sequence. Bytes belong to the readers."""
