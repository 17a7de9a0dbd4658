"""The price seam: what the tokens that a session used have cost.

What comes in: the usage of a session, by route. What goes out: an amount of money, or None where a
price is missing: a guess would mislead. Who provides this has been given the prices; nothing here
knows any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.seams.token_meter import UsageTotals

__all__ = ["PRICES", "Prices"]


class Prices(ABC):
    """Who provides this knows what tokens cost. Synchronous; may be called at any time."""

    @abstractmethod
    def cost(self, routes: Mapping[tuple[str, str], UsageTotals]) -> float | None:
        """What these routes (provider and model) have cost, in the currency of the prices.

        None: some route has no price.
        """


PRICES: Final[ServiceKey[Prices]] = ServiceKey("prices")
