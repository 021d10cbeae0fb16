"""Heads of kernel affine hull machines, without gradients and rounds (kahm.txt, 3.7)."""

from typing import Any, ClassVar

import attrs

from kahm import BATCHINGS, MEASURES, REGULARISATIONS
from secure_fl.errors import InputError
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import Family, Settings, setting


@attrs.frozen(kw_only=True)
class CodedHeads(Settings):
    """Heads whose measures are coded as integers for the encrypted rule."""

    family: ClassVar[Family] = "heads"

    measure: str = setting("folding", "of a fold, eq. (102)", choices=MEASURES)
    bits: int = setting(8, "of the integer codes", least=4, most=16)
    rule: str = setting("tournament", "encrypted rule", choices=("tournament", "paper"))

    @property
    def spanned(self) -> tuple[float, float] | None:
        """Measures that the codes span; None where the release decides."""
        return None

    def facts(self) -> dict[str, Any]:
        """The settings as fields of the federation's manifest."""
        low, high = self.spanned or (0.0, 1.0)
        named = {name: value for name, value in attrs.asdict(self).items() if name != "code_range"}
        return {**named, "low": low, "high": high}


@method("kahm", summary="one pass, heads stay with their clients", source="KAHM, section 3.7")
class KAHMHeads(CodedHeads):
    """One head a client, of its own records or of a private release of them."""

    batch_size: int = setting(100, "records that one machine models, N_b", least=1)
    batching: str = setting("order", "how records become batches", choices=BATCHINGS)
    regularisation: str = setting(
        "absolute",
        "lambda of a machine's kernel: eq. (149), or relative to the batch's root mean square",
        choices=REGULARISATIONS,
        option="lambda",
    )
    code_range: tuple[float, float] = setting(
        (0.0, 1.0),
        "measures that the codes span; public, never taken from private records",
        kind="range",
        option="range",
    )

    def __attrs_post_init__(self) -> None:
        _within(self.code_range)

    @property
    def spanned(self) -> tuple[float, float]:
        """The setting."""
        return self.code_range


@method(
    "kahm-record-private",
    summary="one public head, from masked noisy sums that hide every record",
    source="KAHM, section 3.7, and Kairouz et al. 2021",
)
class RecordPrivateHeads(CodedHeads):
    """One head for all clients; it needs a promise for every record."""

    code_range: tuple[float, float] | None = setting(
        None,
        "measures that the codes span; default: taken from the release",
        kind="range",
        option="range",
    )

    def __attrs_post_init__(self) -> None:
        if self.code_range is not None:
            _within(self.code_range)

    @property
    def spanned(self) -> tuple[float, float] | None:
        """The setting."""
        return self.code_range


def _within(code_range: tuple[float, float]) -> None:
    low, high = code_range
    if low < 0 or high > 1:
        raise InputError(f"range: found {low:g} {high:g}, expected it within 0 and 1")
