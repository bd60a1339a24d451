"""Model files in, one vocabulary out: GGUF files and safetensors folders read alike, and their catalog."""
