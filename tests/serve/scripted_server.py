"""A real server process over the scripted model: `python -m tests.serve.scripted_server [DRAIN_S]`.

Prints its address.
"""

import sys

from tests.serve.serve_builders import ScriptedModel, ScriptedShelf, registry_of
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.server import listen, serve

if __name__ == "__main__":
    pieces = [f" {number}" for number in range(20_000)]
    serve(
        registry_of(ScriptedModel(pieces, pause_s=0.005)),
        listen(port=0),
        limits=LimitsConfig(drain_s=float(sys.argv[1]) if len(sys.argv) > 1 else 1.0),
        on_ready=lambda address: print(address, file=sys.stderr, flush=True),
        shelf=ScriptedShelf(),
    )
