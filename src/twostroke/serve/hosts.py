"""Which names clients may call the server by: what keeps a page whose domain was made to point here outside.

Built by the server from the address it listens on; the application asks it about every request.
"""

import ipaddress
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from twostroke.serve.api_error import ApiError

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
ANY_HOST = "*"


@dataclass(frozen=True, slots=True)
class HostNames:
    """Names in lower case. Beyond this machine addresses are no foreign names: a page always has a name."""

    names: frozenset[str]
    takes_addresses: bool = False

    def takes(self, host: str) -> bool:
        return host in self.names or (self.takes_addresses and is_address(host))


def host_names(address: str, *, others: Collection[str] = (), has_key: bool = False) -> HostNames | None:
    """The names of a server that listens on `address`; None for any.

    `others` are allowed too, "*" allows all. A key, which no foreign page knows, guards as well as names do wherever
    the server listens beyond this machine.
    """
    is_local = is_address(address) and ipaddress.ip_address(address).is_loopback
    if ANY_HOST in others or (has_key and not is_local):
        return None
    own = () if is_local else (socket.gethostname(),)
    names = frozenset(name.lower() for name in (*LOCAL_HOSTS, address, *own, *others))
    return HostNames(names, takes_addresses=not is_local)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


class HostCheck:
    """Refuses requests that call the server by a foreign name."""

    def __init__(self, app: ASGIApp, *, hosts: HostNames) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._takes(Request(scope).headers.getlist("host")):
            error = ApiError(
                "this server does not go by that Host name: call it by its address, or start it with --allow-host NAME",
                status=403,
            )
            await JSONResponse(error.body_for(scope["path"]), status_code=403)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _takes(self, headers: Sequence[str]) -> bool:
        """One name, and one that is ours: of two a proxy may have looked at the other."""
        return len(headers) == 1 and self._hosts.takes(host_of(headers[0]))
