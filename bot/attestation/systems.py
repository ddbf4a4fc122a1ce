"""An operating system below an application, by what its firmware and boot measure."""

from typing import Annotated

from pydantic import StringConstraints

from bot.attestation.quote import TdQuote
from bot.attestation.strict_json import StrictModel

Label = Annotated[str, StringConstraints(pattern="^[ -~]{1,200}$")]
_Measurement = Annotated[str, StringConstraints(pattern="^[0-9a-f]{96}$")]


class OsMeasurement(StrictModel):
    """What one image of the operating system measures on one shape of machine."""

    label: Label
    mrtd: _Measurement
    rtmr0: _Measurement
    rtmr1: _Measurement
    rtmr2: _Measurement

    @classmethod
    def of(cls, quote: TdQuote, label: str) -> "OsMeasurement":
        """Return what a quote measures."""
        rtmr0, rtmr1, rtmr2 = (rtmr.hex() for rtmr in quote.rtmrs[:3])
        return cls(label=label, mrtd=quote.mr_td.hex(), rtmr0=rtmr0, rtmr1=rtmr1, rtmr2=rtmr2)

    def matches(self, quote: TdQuote) -> bool:
        """Whether a quote comes from this system on this shape."""
        return self.of(quote, self.label) == self
