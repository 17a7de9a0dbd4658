"""Ways out: connection pools for one adapter, with the proxies and certificates of the environment.

What comes in: the ENVIRON seam, and requests. What goes out: responses over connections that are
kept alive; nothing retries, follows a redirect, keeps a cookie, or reads an environment of its
own. Loopback addresses are never proxied. TLS is set up when the first https
request asks for it, because loading certificates costs more than a whole local reply.
"""

from __future__ import annotations

import ipaddress
import ssl
from typing import TYPE_CHECKING, Final

import httpx
from typing_extensions import override

from dsh.errors import LlmError
from dsh.llm.http.handshakes import HandshakeWatch

if TYPE_CHECKING:
    from dsh.seams.environ import Environ

__all__ = ["Pools", "proxy_for"]

#: Longer than most tool calls between two steps, shorter than most servers keep a connection.
KEEPALIVE_SECONDS: Final = 60.0


class Pools(httpx.AsyncBaseTransport):
    """One pool for each way out: direct or through a proxy, plain or TLS. Made on first use.

    Requests go to the transport itself: above it stand only cookies, redirects and credentials of
    its own, none of which a model request may have. Its owner calls `aclose()`.
    """

    def __init__(self, environ: Environ) -> None:
        self._environ: Final = environ
        self._pools: Final[dict[tuple[str | None, bool], httpx.AsyncHTTPTransport]] = {}
        self._routes: Final[dict[str, tuple[str | None, bool]]] = {}

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        origin = f"{url.scheme}://{url.netloc.decode()}"
        way = self._routes.get(origin)
        if way is None:
            proxy = proxy_for(url, self._environ)
            way = (proxy, "https" in (url.scheme, (proxy or "").partition(":")[0]))
            if way not in self._pools:
                self._pools[way] = self._pool(*way)
            self._routes[origin] = way
        _proxy, secure = way
        if secure:
            request.extensions = {**request.extensions, "trace": HandshakeWatch()}
        return await self._pools[way].handle_async_request(request)

    def _pool(self, proxy: str | None, secure: bool) -> httpx.AsyncHTTPTransport:  # noqa: FBT001
        try:
            return httpx.AsyncHTTPTransport(
                # A bare context trusts nobody, so a plain pool can never speak TLS by mistake.
                verify=self._trust() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                http1=True,
                http2=False,
                trust_env=False,
                retries=0,
                proxy=proxy,
                limits=httpx.Limits(
                    max_connections=None,
                    max_keepalive_connections=None,
                    keepalive_expiry=KEEPALIVE_SECONDS,
                ),
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            # The proxy's own text may hold a password.
            raise LlmError(
                f"the proxy of the environment cannot be used ({type(error).__name__}); set "
                "HTTPS_PROXY to an http:// address, or NO_PROXY to the server's host",
                code="INVALID_REQUEST",
            ) from None

    def _trust(self) -> ssl.SSLContext:
        file, folder = self._environ.get("SSL_CERT_FILE"), self._environ.get("SSL_CERT_DIR")
        if not file and not folder:
            return httpx.create_ssl_context(trust_env=False)
        try:
            return ssl.create_default_context(cafile=file or None, capath=folder or None)
        except (OSError, ssl.SSLError) as error:
            raise LlmError(
                f"SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}", code="INVALID_REQUEST"
            ) from error

    @override
    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


def proxy_for(url: httpx.URL, environ: Environ) -> str | None:
    """The proxy for this address, or None for a direct connection.

    `https_proxy`, `http_proxy` and `all_proxy` in small or capital letters, small first;
    `no_proxy` lists hosts, domains, addresses, networks or `*`. Loopback is never proxied.
    """
    host = url.host
    if _is_loopback(host):
        return None
    proxy = _variable(environ, f"{url.scheme}_proxy") or _variable(environ, "all_proxy")
    if not proxy or _excluded(host, url.port, _variable(environ, "no_proxy")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Environ, name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    if address is not None:
        return address.is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _excluded(host: str, port: int | None, rules: str) -> bool:
    address = _address(host)
    for rule in (part.strip().lower() for part in rules.split(",")):
        if rule == "*":
            return True
        name, _, rule_port = rule.rpartition(":") if rule.count(":") == 1 else (rule, "", "")
        if not name or (rule_port and rule_port != str(port)):
            continue
        if address is not None:
            try:
                if address in ipaddress.ip_network(name.strip("[]"), strict=False):
                    return True
            except ValueError:
                continue
        domain = name.removeprefix("*").lstrip(".")
        if host == domain or host.endswith(f".{domain}"):
            return True
    return False
