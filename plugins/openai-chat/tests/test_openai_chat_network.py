"""Ways out: proxies, loopback, certificates."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from dsh.errors import LlmError
from dsh.llm.http import Pools, proxy_for
from dsh.testing.wires import Variables

if TYPE_CHECKING:
    from collections.abc import Mapping

PROXY = "http://proxy:3128"


@pytest.mark.holds("case-086", "LM9")
@pytest.mark.parametrize(
    ("url", "variables", "expected"),
    [
        ("https://api.example.com/v1", {}, None),
        ("https://api.example.com/v1", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api.example.com/v1", {"https_proxy": PROXY, "HTTPS_PROXY": "http://no"}, PROXY),
        ("https://api.example.com/v1", {"HTTP_PROXY": PROXY}, None),
        ("http://api.example.com/v1", {"HTTP_PROXY": "proxy:3128"}, PROXY),
        ("http://api.example.com/v1", {"ALL_PROXY": PROXY}, PROXY),
        ("https://api.example.com/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, None),
        ("https://api.example.com/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": ".example.com"}, None),
        ("https://api.example.com/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "a, example.com"}, None),
        ("https://api.example.com/v1", {"HTTPS_PROXY": PROXY, "no_proxy": "ample.com"}, PROXY),
        ("https://example.com:8443/", {"HTTPS_PROXY": PROXY, "NO_PROXY": "example.com:8443"}, None),
        ("https://example.com:1/", {"HTTPS_PROXY": PROXY, "NO_PROXY": "example.com:8443"}, PROXY),
        ("http://10.1.2.3/", {"HTTP_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://11.1.2.3/", {"HTTP_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8, 12.1.1.1"}, PROXY),
        ("http://127.0.0.1:8000/", {"HTTP_PROXY": PROXY}, None),
        ("http://127.9.9.9/", {"ALL_PROXY": PROXY}, None),
        ("http://[::1]:8000/", {"HTTP_PROXY": PROXY}, None),
        ("http://localhost:8000/", {"HTTP_PROXY": PROXY}, None),
        ("http://my.localhost/", {"HTTP_PROXY": PROXY}, None),
        ("http://localhost.example.com/", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://api.example.com/v1", {"HTTPS_PROXY": "  "}, None),
    ],
)
def test_the_proxy_of_an_address(url: str, variables: dict[str, str], expected: str | None) -> None:
    assert proxy_for(httpx.URL(url), Variables(variables)) == expected


async def test_the_environment_of_the_process_itself_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    pools = Pools(Variables({}))
    # Neither "the proxy" nor the certificates are asked: the connection itself is refused.
    for url in ("http://127.0.0.1:9/", "https://127.0.0.1:9/"):
        with pytest.raises(httpx.ConnectError):
            await pools.handle_async_request(httpx.Request("GET", url))
    assert proxy_for(httpx.URL("http://api.example.com/"), Variables({})) is None
    await pools.aclose()


@pytest.mark.parametrize(
    ("url", "variables", "words"),
    [
        ("https://a.example/", {"SSL_CERT_FILE": "/nonexistent/ca.pem"}, "SSL_CERT_FILE"),
        ("http://a.example/", {"HTTP_PROXY": "ftp://user:hush@x"}, "the proxy of the environment"),
        ("http://a.example/", {"HTTP_PROXY": "socks5://user:hush@x:1"}, "the proxy of the env"),
    ],
)
async def test_an_unusable_way_out_is_said_without_its_password(
    url: str, variables: dict[str, str], words: str
) -> None:
    pools = Pools(Variables(variables))
    with pytest.raises(LlmError, match=words) as caught:
        await pools.handle_async_request(httpx.Request("GET", url))
    assert caught.value.code == "INVALID_REQUEST"
    assert "hush" not in str(caught.value)
    await pools.aclose()


async def test_tls_is_set_up_only_for_https(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = httpx.create_ssl_context

    def counted(*, trust_env: bool) -> object:
        made.append("context")
        return original(trust_env=trust_env)

    monkeypatch.setattr(httpx, "create_ssl_context", counted)
    pools = Pools(Variables({}))
    with pytest.raises(httpx.ConnectError):
        await pools.handle_async_request(httpx.Request("GET", "http://127.0.0.1:9/"))
    assert made == []
    with pytest.raises(httpx.ConnectError):
        await pools.handle_async_request(httpx.Request("GET", "https://127.0.0.1:9/"))
    assert made == ["context"]
    await pools.aclose()


@pytest.mark.holds("LM8")
@pytest.mark.parametrize("proxied", [False, True])
async def test_a_cancelled_handshake_closes_its_socket(*, proxied: bool) -> None:
    shaking, closed = trio.Event(), trio.Event()

    async def silent(stream: trio.SocketStream) -> None:
        """A proxy, if it is to be one; then a server that never shakes hands."""
        if proxied:
            assert (await stream.receive_some(4096)).startswith(b"CONNECT model.example:443 ")
            await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        assert (await stream.receive_some(4096)).startswith(b"\x16")  # a TLS record: the handshake
        shaking.set()
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some(4096):
                pass
        closed.set()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, silent, 0, host="127.0.0.1"))
            server = f"127.0.0.1:{listener.socket.getsockname()[1]}"
            variables: Mapping[str, str] = {"HTTPS_PROXY": f"http://{server}"} if proxied else {}
            pools = Pools(Variables(variables))
            url = "https://model.example/" if proxied else f"https://{server}/"
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as inner:
                    inner.start_soon(pools.handle_async_request, httpx.Request("GET", url))
                    await shaking.wait()
                    scope.cancel()
            await closed.wait()
            await pools.aclose()
            nursery.cancel_scope.cancel()
