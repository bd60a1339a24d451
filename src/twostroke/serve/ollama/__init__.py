"""Ollama's API on the same server: requests read strictly, replies in its form. Never decides how an answer is made."""
