"""The address a server takes: what its connections are like."""

import socket

from twostroke.serve.server import listen


def test_a_token_never_waits_for_the_one_before_to_be_acknowledged() -> None:
    with listen(port=0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
