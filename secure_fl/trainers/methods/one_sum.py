"""Linear models from one sum: averaged solutions, pooled ridge regression, its private kin."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, cast

import attrs

from secure_fl.errors import InputError
from secure_fl.trainers.linear_settings import LinearRun, LinearSettings, OneSum, Ridged
from secure_fl.trainers.registry import method

if TYPE_CHECKING:
    from secure_fl.objectives import SquaredLoss


@method("oneshot", summary="clients' own minimisers, averaged once", source="Zhang et al. 2015")
@attrs.frozen(kw_only=True)
class OneShot(OneSum, Ridged):
    """One-shot averaging of the softmax loss."""

    regresses: ClassVar[bool] = True

    def once(self, run: LinearRun) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.oneshot`."""
        from secure_fl.trainers.linear import oneshot

        return oneshot(run.fed, run.objective)


@method("dkrr", summary="clients' ridge regressions, averaged once", source="FedNewton, section 2")
@attrs.frozen(kw_only=True)
class DKRR(OneSum, Ridged):
    """Divide-and-conquer (kernel) ridge regression."""

    regresses: ClassVar[bool] = True

    squared: ClassVar[bool] = True
    probabilistic: ClassVar[bool] = False

    def once(self, run: LinearRun) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.dkrr`."""
        from secure_fl.trainers.linear import dkrr

        return dkrr(run.fed, _squared(run))


@method("krr", summary="the pooled ridge regression, exactly", source="FedNewton, eq. (2)")
@attrs.frozen(kw_only=True)
class KRR(OneSum, Ridged):
    """Ridge regression on the pooled records, from one sum of second moments."""

    regresses: ClassVar[bool] = True

    squared: ClassVar[bool] = True
    probabilistic: ClassVar[bool] = False

    def once(self, run: LinearRun) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.krr`."""
        from secure_fl.trainers.linear import krr

        return krr(run.fed, _squared(run))


@method(
    "private-ridge",
    summary="ridge regression from one masked noisy sum that hides every record",
    source="Kairouz et al. 2021",
)
@attrs.frozen(kw_only=True)
class PrivateRidge(OneSum, LinearSettings):
    """Ridge regression with a promise for every record."""

    regresses: ClassVar[bool] = True

    squared: ClassVar[bool] = True
    probabilistic: ClassVar[bool] = False
    unweighted: ClassVar[bool] = True
    hides_records: ClassVar[bool] = True

    @property
    def bare(self) -> bool:
        """A constant would spend part of the clipped norm on what every record has."""
        return self.random_features == 0

    def once(self, run: LinearRun) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.private_ridge`."""
        from secure_fl.trainers.linear import private_ridge

        if run.promise is None:
            raise InputError("private-ridge: needs a promise for every record")
        return private_ridge(
            run.fed,
            features=run.width,
            outputs=run.objective.classes,
            norm=run.promise.norm,
            epsilon=run.promise.epsilon,
            delta=run.promise.delta,
            ledger=run.promise.ledger,
            adjacency=run.promise.adjacency,
            target_norm=run.target_norm,
        )


def _squared(run: LinearRun) -> "SquaredLoss":
    # Of methods with `squared`, see LinearSettings.objective.
    return cast("SquaredLoss", run.objective)
