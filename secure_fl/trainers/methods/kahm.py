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
    rule: str = setting(
        "tournament",
        "by which queries are answered; tournament and paper on ciphertexts",
        choices=("tournament", "paper", "masked", "votes"),
    )
    answer_noise: float = setting(
        0.0, "of the rule votes: standard deviation of an answer's noise, in votes", least=0
    )

    def __attrs_post_init__(self) -> None:
        if (self.answer_noise > 0) != (self.rule == "votes"):
            raise InputError(
                f"answer-noise: found {self.answer_noise:g} for the rule {self.rule}; noise above 0"
                " is of the rule votes, and of it alone"
            )

    @property
    def private_answers(self) -> bool:
        """Whether answers have noise: all that they depend on is then public, or one client's."""
        return self.rule == "votes"

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
@attrs.frozen(kw_only=True)
class KAHMHeads(CodedHeads):
    """One head a client, of its own records or of a private release of them."""

    batch_size: int | None = setting(
        None,
        "records that one machine models, N_b; default: tuned, 100 where privacy is promised",
        kind="whole",
        least=1,
    )
    batching: str = setting("order", "how records become batches", choices=BATCHINGS)
    regularisation: str | None = setting(
        None,
        "lambda of a machine's kernel: absolute, eq. (149), or relative to the batch's root mean"
        " square, also with a floor under what machines of a single record measure; default: tuned,"
        " absolute where privacy is promised or --batch-size given",
        kind="choice",
        choices=REGULARISATIONS,
        option="lambda",
    )
    regularisation_factor: float = setting(
        1.0, "on that lambda; needs it", above=0, option="lambda-factor"
    )
    code_range: tuple[float, float] = setting(
        (0.0, 1.0),
        "measures that the codes span; public, never taken from private records",
        kind="range",
        option="range",
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        _within(self.code_range)
        if self.regularisation is None and self.regularisation_factor != 1.0:
            raise InputError("lambda-factor: needs --lambda absolute or relative")

    @property
    def tuned(self) -> bool:
        """Whether batch size and lambda are to be tuned: nothing was said of them.

        Counts of private records decide that, and no answer of the rule votes may depend on them.
        """
        unsaid = self.batch_size is None and self.regularisation is None
        return unsaid and not self.private_answers

    def facts(self) -> dict[str, Any]:
        """As `CodedHeads`; what is not tuned has the paper's values."""
        found = super().facts()
        found["batch_size"] = self.batch_size or 100
        found["regularisation"] = self.regularisation or "absolute"
        return found

    @property
    def spanned(self) -> tuple[float, float]:
        """The setting."""
        return self.code_range


@method(
    "kahm-record-private",
    summary="one public head, from masked noisy sums that hide every record",
    source="KAHM, section 3.7, and Kairouz et al. 2021",
)
@attrs.frozen(kw_only=True)
class RecordPrivateHeads(CodedHeads):
    """One head for all clients; it needs a promise for every record."""

    code_range: tuple[float, float] | None = setting(
        None,
        "measures that the codes span; default: taken from the release",
        kind="range",
        option="range",
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.private_answers:
            raise InputError(
                "rule: votes are of heads that are each client's own (--method kahm); this head is"
                " all clients', and a release already"
            )
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
