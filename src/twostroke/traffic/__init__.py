"""Requests to a server over HTTP, as its clients send them: one at a time for a chat, or a load that is timed.

Knows the public API of OpenAI-compatible servers and nothing of this engine's insides.
"""
