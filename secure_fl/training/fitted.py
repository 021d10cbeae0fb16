"""What `train` gives back: something that predicts, can be kept, and says what it promises."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dp import Statement
from fhe.envelope import PRIVATE
from secure_fl.errors import InputError
from secure_fl.files import new_folder
from secure_fl.heads.confidence import decide
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.run_folder import all_measures, fill_run, load_run, query_features
from secure_fl.training.linear_model import LinearModel, RegressionModel, mapped
from secure_fl.training.loading import load_model
from secure_fl.training.model_files import FILE, PERSONAL

if TYPE_CHECKING:
    from secure_fl.training.network_model import TrainedNetwork

NO_GUARANTEE = "no guarantee; the model shows what it was trained on"


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model of a method by rounds or sums.

    Attributes:
        model: its weights, and what stands between a record and them.
        rounds: that were run in all; 0 where it was loaded.
        figures: of the last round: test accuracy, contraction factor and step, where there are.
        traffic: bytes that each client sent and received, by name.
        personal: clients' own models, by name; each is its client's and goes to nobody else.
        remarks: what a person should look at before the model is used.
    """

    model: "LinearModel | TrainedNetwork"
    rounds: int
    figures: Mapping[str, float]
    traffic: Mapping[str, tuple[int, int]]
    personal: Mapping[str, "TrainedNetwork"]
    remarks: tuple[str, ...] = ()

    @property
    def classes_(self) -> tuple[str, ...]:
        """Labels, in the order of the columns of `predict_proba`."""
        return self.model.classes

    @property
    def privacy(self) -> str:
        """What is promised, in one line with epsilon, delta and unit."""
        found = self.model.origin.get("privacy")
        return NO_GUARANTEE if found is None else str(found)

    def predict(self, X: Any) -> NDArray[np.str_]:
        """Labels, shape (n,).

        Args:
            X: features as in the client files, not scaled, shape (n, d).

        Raises:
            InputError: another number of features, or a row that is not finite.
        """
        return np.array(self.classes_)[self.model.predict(self._inputs(X))]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The softmax of the scores, shape (n, C), for models that were trained by that loss.

        They are what the loss fits on the training records, and as overconfident as it is; they are
        not calibrated on other records.

        Raises:
            InputError: as `predict`; or a model whose scores are no logarithms of probabilities.
        """
        from scipy.special import softmax

        inputs = self._inputs(X)
        if isinstance(self.model, LinearModel):
            self._check_softmax()
            scores = mapped(inputs, self.model.random) @ self.model.weights
        else:
            scores = self.model.scores(inputs)
        found: NDArray[np.float64] = softmax(np.asarray(scores, dtype=np.float64), axis=1)
        return found

    def save(self, folder: str | Path) -> None:
        """Writes a run folder, as `securefl train` does, whole or not at all."""
        with new_folder(Path(folder)) as aside:
            self.fill(aside)

    def fill(self, aside: Path) -> int:
        """Writes the files into a folder of `new_folder`; returns the model's bytes."""
        size = self.model.save(aside / FILE)
        for name, own in self.personal.items():
            (aside / PERSONAL / name).mkdir(parents=True)
            own.save(aside / PERSONAL / name / FILE, mode=PRIVATE)
        return size

    @classmethod
    def load(cls, folder: str | Path) -> "FittedModel":
        """Reads the model of a run folder.

        Raises:
            fhe.errors.InputError, FormatError: as `secure_fl.training.loading.load_model`.
        """
        found = load_model(Path(folder))
        kind = FittedRegression if isinstance(found, RegressionModel) else FittedModel
        return kind(found, 0, {}, {}, {})  # type: ignore[arg-type]  # as the kind has it

    def _inputs(self, X: Any) -> NDArray[Any]:
        return query_features(np.asarray(X), self.model, source="X")

    def _check_softmax(self) -> None:
        from secure_fl.trainers.linear_settings import LinearSettings
        from secure_fl.trainers.registry import find

        method = str(self.model.origin.get("method"))
        settings = find(method, "linear")
        assert issubclass(settings, LinearSettings)
        if not settings.probabilistic:
            raise InputError(
                f"predict_proba: the scores of {method} are no probabilities; take a method of the"
                " softmax loss, such as fednewton-head"
            )


@dataclass(frozen=True, eq=False)
class FittedRegression(FittedModel):
    """A model that predicts numbers."""

    model: RegressionModel

    @property
    def targets_(self) -> tuple[str, ...]:
        """Names of what is predicted, in the order of the columns of `predict`."""
        return self.model.targets

    def predict(self, X: Any) -> NDArray[np.float64]:  # type: ignore[override]  # numbers, no labels
        """Numbers, shape (n, C), in the targets' units.

        Args:
            X: features as in the client files, not scaled, shape (n, d).

        Raises:
            InputError: another number of features, or a row that is not finite.
        """
        return self.model.values(self._inputs(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Refused: numbers have no classes.

        Raises:
            InputError: always.
        """
        raise InputError("predict_proba: the model predicts numbers; call predict")


@dataclass(frozen=True, eq=False)
class FittedHeads:
    """The heads of all clients, together as only a simulation has them.

    Attributes:
        manifest: the federation's facts.
        heads: one a client.
        statements: what each client's release promises; empty without noise.
    """

    manifest: Manifest
    heads: Sequence[Head]
    statements: Sequence[tuple[str, Statement]]

    @property
    def classes_(self) -> tuple[str, ...]:
        """Labels."""
        return self.manifest.classes

    @property
    def privacy(self) -> str:
        """What the first client's release promises, whole."""
        if not self.statements:
            return "no guarantee; a head holds its client's records and must stay there"
        return self.statements[0][1].text()

    def predict(self, X: Any) -> NDArray[np.str_]:
        """Labels by the rule in the clear, with exact measures, shape (n,).

        "unknown" where the manifest has a threshold and all measures are above it.

        Args:
            X: features as in the client files, not scaled, shape (n, d).
        """
        features = query_features(np.asarray(X), self.manifest, source="X")
        found = decide(all_measures(self.heads, features, self.manifest), self.manifest)
        return np.array(self.manifest.answers)[found]

    def save(self, folder: str | Path) -> None:
        """Writes a run folder, as `securefl train` does, whole or not at all."""
        with new_folder(Path(folder)) as aside:
            self.fill(aside)

    def fill(self, aside: Path) -> dict[str, int]:
        """Writes the files into a folder of `new_folder`; returns the bytes of each head."""
        return fill_run(aside, self.heads, self.manifest, self.statements)

    @classmethod
    def load(cls, folder: str | Path) -> "FittedHeads":
        """Reads a run folder; its statements stay there."""
        manifest, heads = load_run(Path(folder))
        return cls(manifest, heads, ())
