"""How all clients of a network train their heads."""

import hashlib
import json
from typing import Any, Literal

import attrs
from attrs import frozen

from secure_fl.data import Dataset
from secure_fl.federation import Client
from secure_fl.federation.checkpoint import records_digest
from secure_fl.heads.manifest import Manifest, make_manifest
from secure_fl.privacy.promises import ReleasePromise


@frozen
class HeadRecipe:
    """How all clients train their heads; public.

    Attributes:
        batch_size, batching, regularisation, regularisation_factor, measure, bits, low, high, rule,
            answer_noise, encoder: as `Manifest`'s.
        seed: of the batches when they are clusters.
        privacy: what every client promises; None for heads of the records themselves.
        method: kahm-record-private makes one public head of masked sums of all clients, see
            `secure_fl.heads.record_private`; `privacy` is then None.
    """

    batch_size: int = 100
    batching: str = "order"
    regularisation: str = "absolute"
    regularisation_factor: float = 1.0
    measure: str = "folding"
    bits: int = 8
    low: float = 0.0
    high: float = 1.0
    rule: str = "tournament"
    answer_noise: float = 0.0
    encoder: str = "none"
    seed: int = 0
    privacy: ReleasePromise | None = None
    method: Literal["kahm", "kahm-record-private"] = "kahm"

    def manifest(self, **facts: Any) -> Manifest:
        """The federation of these heads.

        Args:
            facts: the other fields of `Manifest`.

        Raises:
            InputError: a field is out of range.
        """
        unit = "none" if self.privacy is None else self.privacy.adjacency.kind
        unit = "record" if self.method == "kahm-record-private" else unit
        kept = {field.name for field in attrs.fields(Manifest)} & set(attrs.asdict(self))
        return make_manifest(unit=unit, **{name: getattr(self, name) for name in kept}, **facts)

    def origin(self, manifest: Manifest, data: Dataset) -> str:
        """Digest of all that a client's head depends on."""
        facts = [
            records_digest([Client(data.name, data.X, data.y)]),
            [manifest.classes, manifest.scale, self.batch_size, self.batching, self.seed],
            repr(self.privacy),
            # Only where there is something to say: kept heads of earlier versions stay valid.
            *([manifest.scaling_map.to_json()] if manifest.scaling != "none" else ()),
            *([self.regularisation] if self.regularisation != "absolute" else ()),
            *([self.regularisation_factor] if self.regularisation_factor != 1.0 else ()),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
