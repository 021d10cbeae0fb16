"""How fast is exact integer noise, beside OpenDP's vector discrete Laplace on the same machine?

One core: neither side uses threads. The target is 2 million elements a second and 20 times OpenDP.
"""

from fractions import Fraction
from functools import partial

from benchmarks._harness import Run, benchmark, timed
from dp.mechanisms import GaussianNoise, Noise, OptimalNoise, StaircaseNoise
from dp.samplers import TwoSidedGeometric

STEPS = (20, 1024, 2**20)
"""Sensitivities in grid steps at epsilon 1, hence scales of the noise."""


def _opendp_seconds(scale: float, n: int, repeats: int) -> float:
    import opendp.prelude as opendp

    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l1_distance(T="i64")
    mechanism = opendp.m.make_laplace(*space, scale=scale)
    zeros = [0] * n
    return timed(lambda: mechanism(zeros), repeats=repeats)[0]


def _noises(steps: int) -> list[tuple[str, Noise]]:
    noises: list[tuple[str, Noise]] = [
        ("geometric with atom", OptimalNoise(1.0, 1e-5).noise(steps)),
        ("geometric", TwoSidedGeometric(Fraction(1, steps))),
        ("staircase", StaircaseNoise(1.0).noise(steps)),
    ]
    if steps < 2**20:
        noises.append(("discrete Gaussian", GaussianNoise(1.0, 1e-5).noise(steps)))
    return noises


@benchmark("how fast is exact integer noise beside OpenDP's vector discrete Laplace?")
def main(run: Run) -> None:
    """Elements a second of every sampler, from the operating system's randomness."""
    n = 2_000_000 if run.quick else 10_000_000
    n_opendp, repeats = (50_000, 2) if run.quick else (500_000, 3)
    run.parameter(elements=n, opendp_elements=n_opendp, epsilon=1.0)
    table = run.table(
        "exact noise, one core",
        ["noise", "steps at epsilon 1", "million a second", "times OpenDP"],
    )
    for steps in STEPS:
        run.progress(f"sensitivity {steps}: OpenDP")
        theirs = n_opendp / _opendp_seconds(float(steps), n_opendp, repeats) / 1e6
        table.add("OpenDP discrete Laplace", steps, theirs, 1.0)
        for name, noise in _noises(steps):
            run.progress(f"sensitivity {steps}: {name}")
            noise.draw(10)  # builds the tables
            ours = n / timed(partial(noise.draw, n), repeats=repeats)[0] / 1e6
            table.add(name, steps, ours, ours / theirs)
    run.note("OpenDP's list conversion from and to Python is part of its time: it is its interface")
    run.note("the discrete Gaussian is measured up to 1024 steps, beyond its sigma is refused")


if __name__ == "__main__":
    main()
