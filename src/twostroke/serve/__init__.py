"""The HTTP door: the APIs of OpenAI and Ollama over one model or several. Knows LLM and core facts alone."""
