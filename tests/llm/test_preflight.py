"""Servers of one's own are tried before a run; those that answer, and providers, are not named."""

from __future__ import annotations

import socket

from hipwright.llm.preflight import silent_servers
from hipwright.llm.specs import parse_spec


def test_a_server_that_is_not_there_is_named_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    dead = f"http://127.0.0.1:{port}/v1"
    specs = [parse_spec(f"compatible:m@{dead}"), parse_spec(f"openai:other@{dead}"), parse_spec("anthropic:m")]
    ((address, why),) = silent_servers(specs)
    assert address == dead and "refused" in why


def test_a_server_that_listens_is_not_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not [*silent_servers([parse_spec(f"vllm:m@http://127.0.0.1:{server.getsockname()[1]}/v1")])]


def test_a_host_without_an_address_is_named() -> None:
    ((found, why),) = silent_servers([parse_spec("compatible:m@http://nowhere.invalid/v1")])
    assert found == "http://nowhere.invalid/v1" and why
