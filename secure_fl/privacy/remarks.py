"""What a person should look at before a promise is made: numbers that protect or say too little.

All of it follows from public choices: nothing here looks at a record.
"""

import math

from dp import Element
from dp.release_plan import make_plan
from secure_fl.privacy.promises import ReleasePromise

LARGEST_DELTA = 1e-4
"""A delta above it is remarked on, whatever the number of records."""


def delta_remarks(
    delta: float, number: int | None = None, *, of: str = "record"
) -> tuple[str, ...]:
    """A remark where delta is too large to mean protection, or nothing.

    A mechanism that publishes each record whole with probability delta keeps (0, delta); of n
    records it then publishes n delta (Dwork and Roth 2014, section 2.3).

    Args:
        delta: of the promise, in [0, 1).
        number: of records of the largest client, or of clients; None where it is not known.
        of: "record" or "client", what the promise is for.
    """
    published = None if number is None else delta * number
    if published is not None and published >= 1:
        return (
            f"delta {delta:g} is large: a mechanism that publishes {published:,.3g} of"
            f" {number:,} {of}s as they are keeps it; take a delta well below 1 / {number:,}",
        )
    if delta > LARGEST_DELTA:
        return (
            f"delta {delta:g} is large: a mechanism that publishes each {of} as it is with that"
            f" probability keeps it; take 1e-5 or less, well below 1 / the number of {of}s",
        )
    return ()


def noise_of(promise: ReleasePromise, columns: int) -> float:
    """Standard deviation of the noise on an entry, in units of scaled features.

    Args:
        promise: of a release.
        columns: features of a record, at least 1.

    Raises:
        dp.InputError: the promise makes no sense.
    """
    return math.sqrt(make_plan(**promise.terms()).variance(columns))


def largest_signal(promise: ReleasePromise, columns: int) -> float:
    """Largest root mean square that entries can have about the middle of their bounds.

    Records that are clipped to a norm R have a root mean square of at most R / sqrt(columns).
    """
    low, high = promise.bounds
    half = (high - low) / 2
    if isinstance(promise.adjacency, Element):
        return half
    return min(half, promise.adjacency.norm / math.sqrt(columns))


def release_remarks(
    promise: ReleasePromise, columns: int, records: int | None = None
) -> tuple[str, ...]:
    """Remarks on a release, of its noise and its delta; empty where there is nothing to say.

    Args:
        promise: of the release.
        columns: features of a record, at least 1.
        records: of the largest client; None where they are not known.

    Raises:
        dp.InputError: the promise makes no sense.
    """
    noise, signal = noise_of(promise, columns), largest_signal(promise, columns)
    found = delta_remarks(promise.delta, records)
    if noise <= signal:
        return found
    low, high = promise.bounds
    remedy = "a smaller distance if that is honest"
    cause = f"on entries in [{low:g}, {high:g}]"
    if not isinstance(promise.adjacency, Element):
        remedy = "fewer features"
        cause += f" whose root mean square is at most {signal:.2g}"
    return (
        *found,
        f"noise of standard deviation {noise:.3g} {cause}: single entries say next to nothing;"
        f" take a larger epsilon, or {remedy}",
    )
