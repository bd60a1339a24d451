"""Who may call the server by which name: pages of other origins may not, whatever address it listens on."""

import socket

import pytest

from tests.serve.serve_builders import client_of, error_of, make_chat
from twostroke.serve.hosts import HostNames, host_names, host_of

CHAT = "/v1/chat/completions"
LOCAL = host_names("127.0.0.1")


def names_of(address: str, *others: str) -> HostNames:
    names = host_names(address, others=others)
    assert names is not None
    return names


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "LOCALHOST"])
def test_the_servers_own_names_are_let_in(host: str) -> None:
    with client_of(hosts=LOCAL) as client:
        assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "evil.example:8080", "", "[::2]"])
def test_foreign_names_are_not(host: str) -> None:
    with client_of(hosts=LOCAL) as client:
        response = client.post(CHAT, json=make_chat(), headers={"host": host})
    assert response.status_code == 403
    assert "--allow-host" in error_of(response)["message"]


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.7.1"])
def test_a_server_beyond_this_machine_takes_addresses_and_its_own_name_but_no_pages(address: str) -> None:
    names = names_of(address)
    for host in ("192.168.7.1", "10.0.0.1", "fe80::1", "localhost", socket.gethostname().lower()):
        assert names.takes(host), host
    for host in ("evil.example", "192.168.7.1.evil.example", "1", ""):
        assert not names.takes(host), host


def test_other_names_are_let_in_where_that_was_said() -> None:
    assert names_of("0.0.0.0", "Models.LAN").takes("models.lan")
    assert names_of("127.0.0.1", "proxy").takes("proxy")
    assert not names_of("127.0.0.1", "proxy").takes("10.0.0.1")
    assert host_names("0.0.0.0", others=["*"]) is None


def test_a_key_guards_a_server_beyond_this_machine_under_any_name() -> None:
    assert host_names("0.0.0.0", has_key=True) is None
    assert host_names("127.0.0.1", has_key=True) == LOCAL


def test_a_host_is_its_name_without_the_port() -> None:
    hosts = ("a:1", "A", "[::1]:2", "[::1]", "")
    assert [host_of(host) for host in hosts] == ["a", "a", "::1", "::1", ""]
