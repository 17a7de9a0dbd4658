"""For tests of adapters of model servers: replies taken apart, with and without a server.

What comes in: a decoder, or an adapter and the server it talks to. What goes out: assembled replies
that obey the grammar of chunks, or the one failure. Nothing of the adapter is replaced.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

from typing_extensions import override

from dsh.errors import LlmError, MissingCredential
from dsh.llm import Assembler, grammar_fault, http
from dsh.seams.environ import Credentials, Environ, Secret
from dsh.testing.model_seam import ask, collect, user

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from dsh.catalog.records import StreamChunk
    from dsh.llm import LlmAdapter

__all__ = ["OpenServer", "Variables", "WireBench", "answered", "failure"]

P_contra = TypeVar("P_contra", contravariant=True)


@final
class WireBench:
    """Decodes bodies of one wire."""

    def __init__(self, make: http.MakeDecoder) -> None:
        self._make: Final = make

    def decoded(self, *reads: bytes) -> list[StreamChunk]:
        """The chunks of a whole body that says when it is over."""
        out: deque[StreamChunk] = deque()
        decoder, framer = self._make(out, str), http.EventFramer()
        for read in reads:
            for data in framer.feed(read):
                if not decoder.done:
                    decoder.decode(data)
        assert decoder.done, "the body does not say that it is over"
        decoder.finish()
        chunks = list(out)
        assert grammar_fault(chunks) is None
        return chunks

    def assembled(self, *reads: bytes) -> Assembler:
        """The reply of such a body."""
        return _assembled(self.decoded(*reads))

    def failed(self, *reads: bytes) -> LlmError:
        """The failure that such a body is."""
        try:
            self.decoded(*reads)
        except LlmError as error:
            return error
        raise AssertionError("the body was decoded, and should have failed")


async def answered(adapter: LlmAdapter) -> Assembler:
    """The reply to `hi` on the route `p`."""
    return _assembled(await collect(adapter.stream(ask(user("hi")))))


async def failure(adapter: LlmAdapter) -> LlmError:
    """The failure that `hi` on the route `p` meets."""
    try:
        await collect(adapter.stream(ask(user("hi"))))
    except LlmError as error:
        return error
    raise AssertionError("the request was answered, and should have failed")


def _assembled(chunks: Sequence[StreamChunk]) -> Assembler:
    assert grammar_fault(chunks) is None
    assembler = Assembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


class OpenServer(Protocol[P_contra]):
    """The type of a fixture that opens an adapter for one server with a profile of that kind."""

    def __call__(
        self,
        base_url: str = "",
        *,
        profile: P_contra | None = None,
        variables: Mapping[str, str] | None = None,
        provider: str = "p",
    ) -> AbstractAsyncContextManager[http.ServerAdapter]:
        """The adapter; it is closed at the end of the block."""
        ...


@final
class Variables(Environ, Credentials):
    """Variables of a test, as both seams; every one may be a key."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values: Final = dict(values or {})

    @override
    def get(self, name: str) -> str | None:
        return self.values.get(name)

    @override
    def variables(self) -> Mapping[str, str]:
        return self.values

    @override
    def resolve(self, name: str) -> Secret:
        value = self.values.get(name)
        if not value:
            raise MissingCredential(f"{name} is not set")
        if not (value.isascii() and value.isprintable()) or " " in value:
            raise MissingCredential(f"{name} cannot be sent", code="INVALID_CREDENTIAL")
        return Secret(name, value)

    @override
    def reserve(self, names: Iterable[str]) -> None:
        del names

    @override
    def secret_names(self) -> frozenset[str]:
        return frozenset()
