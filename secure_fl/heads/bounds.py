"""The paper's bounds for one run, said in words (kahm.txt, theorems 3, 5, 6, 7)."""

from dataclasses import dataclass

from kahm import bounds


@dataclass(frozen=True)
class ClassBounds:
    """Bounds of one class that hold with probability 1 - delta.

    Attributes:
        label: the class.
        records: N_c.
        prediction: theorem 3, with a disturbance of 0.
        hypothesis: theorem 6, with an empirical error and a disturbance of 0.
        approximation: theorem 7 with an empirical error of 0 (proposition 2).
        share: N_c / N.
    """

    label: str
    records: int
    prediction: float
    hypothesis: float
    approximation: float

    share: float

    @property
    def smallest(self) -> float:
        """The smallest of the three."""
        return min(self.prediction, self.hypothesis, self.approximation)

    @property
    def trivial(self) -> float:
        """The squared error of always answering the class's share p: p (1 - p)."""
        return self.share * (1.0 - self.share)

    @property
    def informative(self) -> bool:
        """Whether the smallest bound is below what answering without features gives."""
        return self.smallest < self.trivial

    @property
    def verdict(self) -> str:
        """What the smallest bound is worth, in words.

        The yardstick is the squared error of always answering the class's share p: p (1 - p).
        """
        if bounds.is_vacuous(self.smallest):
            return "vacuous: no error can exceed 1"
        if not self.informative:
            return (
                f"vacuous in practice: always answering the class's share gives {self.trivial:.3g}"
            )
        return "informative"


def class_bounds(counts: dict[str, int], delta: float) -> list[ClassBounds]:
    """The bounds for the number of records of each class.

    Args:
        counts: records of each class over all clients.
        delta: in (0, 1).
    """
    n_records = sum(counts.values())
    return [
        ClassBounds(
            label,
            n_class,
            bounds.prediction_error(n_records, n_class / n_records, delta, disturbance=0.0),
            bounds.hypothesis_prediction_error(
                n_records, n_class, delta, empirical_error=0.0, disturbance=0.0
            ),
            bounds.hypothesis_approximation_error(n_records, n_class, delta),
            n_class / n_records,
        )
        for label, n_class in counts.items()
    ]
