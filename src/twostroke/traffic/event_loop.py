"""The event loop a load runs on: uvloop where it is installed, as it takes less of the machine that is measured."""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop; the caller closes it."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
