"""Gradient descent on masked noisy sums that hide every record, from public class texts or zero."""

from collections.abc import Iterator
from typing import Any, ClassVar

import attrs

from secure_fl.errors import InputError
from secure_fl.trainers.linear_settings import LinearRun, LinearSettings
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import setting


@method(
    "private-gradient",
    summary="gradient descent on masked noisy sums that hide every record",
    source="Bassily et al. 2014, with the noise of Kairouz et al. 2021",
)
@attrs.frozen(kw_only=True)
class PrivateGradient(LinearSettings):
    """Full-batch noisy gradient descent with a promise for every record."""

    unweighted: ClassVar[bool] = True
    hides_records: ClassVar[bool] = True
    takes_class_texts: ClassVar[bool] = True
    own_constant: ClassVar[bool] = True

    rounds: int = setting(40, "of training, all of them booked before the first", least=2)

    @property
    def bare(self) -> bool:
        """A constant would spend part of the clipped norm on what every record has."""
        return self.random_features == 0

    def sums(self, classes: int) -> int:
        """One a round, and one of the records and their number."""
        return self.rounds + 1

    def states(self, run: LinearRun, start: Any) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.noisy_gradient`; a run that was done has no more."""
        from secure_fl.trainers.linear import noisy_gradient

        if run.promise is None:
            raise InputError("private-gradient: needs a promise for every record")
        if start is not None:
            return iter(())
        return noisy_gradient(
            run.fed,
            features=run.width,
            outputs=run.objective.classes,
            norm=run.promise.norm,
            epsilon=run.promise.epsilon,
            delta=run.promise.delta,
            ledger=run.promise.ledger,
            rounds=self.rounds,
            adjacency=run.promise.adjacency,
            prior=run.promise.prior,
            centred=self.bare,
        )
