"""The HTTP door: OpenAI's routes over one loaded model. Knows LLM, parameters and core facts, nothing deeper."""
