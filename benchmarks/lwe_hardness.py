"""How hard is it to break contributions and keys by known lattice attacks?

Estimates for LWE with secrets of small deviation, by four attacks:

- *primal (uSVP)*: block Korkine-Zolotarev reduction with block size beta finds the secret in the
  lattice of Bai and Galbraith (ACISP 2014), scaled so that secret and error are alike, when
  sigma sqrt(beta) <= delta^(2 beta - d - 1) Vol^(1/d) (Alkim, Ducas, Poeppelmann and Schwabe,
  USENIX Security 2016; Albrecht, Goepfert, Virdia and Wunderer, Asiacrypt 2017).
- *dual*: short vectors of the dual lattice make samples of error sigma' = delta^d
  sigma_s (sigma_e / (sigma_s q))^(m/d); telling them from uniform takes exp(4 pi^2 sigma'^2) of
  them; a sieve gives (4/3)^(beta/2) at once (Albrecht, Eurocrypt 2017).
- *dual hybrid*: the same on n - zeta coordinates, and an exhaustive search of zeta of them
  (Espitau, Joux and Kharchenko, Indocrypt 2020).
- *primal hybrid*: zeta coordinates guessed, the rest by the primal attack with a close vector
  (Howgrave-Graham, Crypto 2007; Buchmann, Goepfert, Player and Wunderer, Africacrypt 2016).
  One reduction serves all guesses; each takes Babai's nearest planes, d^2 operations, which find
  the error with the probability that it lies within half of every vector of the basis.
- *primal hybrid, bound*: as before, with the square root of the guesses, as if a meeting in the
  middle were always noticed. It is not: its chance is tiny (Wunderer, 2019, and the lattice
  estimator give far more bits), so this is a bound from below and no estimate of an attack.

delta(beta) = (beta / (2 pi e) (pi beta)^(1/beta))^(1 / (2 (beta - 1))) (Chen's thesis, 2013), basis
profiles are geometric. Costs of one reduction of dimension d, in bits: 0.292 beta + 16.4 +
log2(8 d) ("sieve", Becker, Ducas, Gama and Laarhoven, SODA 2016; that of the table of the
homomorphic encryption standard), and 0.292 beta alone ("core"), the least that an attacker pays.

An estimate is no proof. It says nothing about the structure of rings, which no known attack uses.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from benchmarks._harness import Run, benchmark

Cost = Callable[[int, int], float]


@dataclass(frozen=True)
class Lwe:
    """An LWE problem with as many samples as an attacker wants.

    Attributes:
        n: dimension.
        log_q: bits of the modulus.
        secret: deviation of a coordinate of the secret, from its mean.
        error: deviation of the error, in units of 1.
        support: values that a coordinate of the secret takes; None where it is too many to guess.
    """

    n: int
    log_q: float
    secret: float
    error: float
    support: int | None = 2


def sieve(beta: int, d: int) -> float:
    """Bits of one reduction; Becker, Ducas, Gama and Laarhoven with 8 d calls."""
    return 0.292 * beta + 16.4 + math.log2(8 * d)


def core(beta: int, d: int) -> float:
    """Bits of one call of a sieve, without what is below the exponent."""
    return 0.292 * beta


def log_delta(beta: int) -> float:
    """ln of the root Hermite factor of block size beta, at least 40."""
    return math.log(beta / (2 * math.pi * math.e) * (math.pi * beta) ** (1 / beta)) / (
        2 * (beta - 1)
    )


def solves(lwe: Lwe, n: int, beta: int, d: int) -> bool:
    """Whether block size beta finds the secret of n coordinates in a lattice of dimension d."""
    scale = math.log(max(1.0, lwe.error / lwe.secret))
    volume = n * scale + (d - n - 1) * lwe.log_q * math.log(2) + math.log(lwe.error)
    found = math.log(lwe.error) + math.log(beta) / 2
    return found <= (2 * beta - d - 1) * log_delta(beta) + volume / d


def primal(lwe: Lwe, cost: Cost, n: int | None = None) -> tuple[float, int]:
    """Bits, and the block size, of the primal attack on n coordinates."""
    n = lwe.n if n is None else n
    low, high = 40, 4 * n

    def least(beta: int) -> int | None:
        # The volume's best dimension, and the smallest below it that is enough.
        free = lwe.log_q * math.log(2) - math.log(max(1.0, lwe.error / lwe.secret))
        best = round(math.sqrt(n * free / log_delta(beta)))
        best = max(best, n + 2, beta + 1)
        if not solves(lwe, n, beta, best):
            return None
        bottom, top = max(n + 1, beta), best
        while bottom + 1 < top:
            middle = (bottom + top) // 2
            if solves(lwe, n, beta, middle):
                top = middle
            else:
                bottom = middle
        return top

    while low + 1 < high:
        middle = (low + high) // 2
        if least(middle) is None:
            low = middle
        else:
            high = middle
    return cost(high, least(high) or high), high


def dual(lwe: Lwe, cost: Cost, guessed: int = 0) -> tuple[float, int]:
    """Bits, and the block size, of the dual attack that searches so many coordinates."""
    n = lwe.n - guessed
    ratio = math.log(lwe.secret) + lwe.log_q * math.log(2) - math.log(lwe.error)
    guesses = guessed * math.log2(lwe.support or 2)

    def bits(beta: int) -> float:
        delta = log_delta(beta)
        d = max(n + 1, math.ceil(math.sqrt(n * ratio / delta)))
        # A sieve's vectors are longer than the shortest by sqrt(4/3).
        sigma = math.sqrt(4 / 3) * lwe.secret * math.exp(d * delta - (d - n) / d * ratio)
        exponent = 4 * math.pi**2 * sigma**2 / math.log(2)
        if exponent > 2000:
            return math.inf
        samples = exponent + 2 + math.log2(max(1.0, guesses * math.log(2) + 5))
        repeats = max(0.0, samples - beta / 2 * math.log2(4 / 3))
        return add(cost(beta, d) + repeats, guesses + samples)

    return least_of(bits, 40, 4 * lwe.n)


def hybrid(lwe: Lwe, cost: Cost) -> tuple[float, int, int]:
    """Bits, block size and guessed coordinates of the dual hybrid attack."""
    found, guessed = least_of(lambda zeta: dual(lwe, cost, zeta)[0], 0, min(lwe.n - 50, 300))
    return found, dual(lwe, cost, guessed)[1], guessed


def primal_hybrid(lwe: Lwe, cost: Cost, share: float = 1.0) -> tuple[float, int, int]:
    """Bits, block size and guessed coordinates of the primal hybrid attack.

    Args:
        lwe: the problem.
        cost: of a reduction.
        share: of the guesses' bits that a search costs: 1, or 1/2 for a meeting in the middle.
    """

    def bits(zeta: int) -> float:
        return least_of(lambda beta: guess(zeta, beta), 40, 2 * lwe.n)[0]

    def guess(zeta: int, beta: int) -> float:
        n, scale = lwe.n - zeta, math.log(max(1.0, lwe.error / lwe.secret))
        free = lwe.log_q * math.log(2) - scale
        d = max(round(math.sqrt(n * free / log_delta(beta))), n + 1, beta)
        volume = n * scale + (d - n) * lwe.log_q * math.log(2)
        norms = (d - 1 - 2 * np.arange(d)) * log_delta(beta) + volume / d
        # Nearest plane finds the error where it lies within half of every vector of the basis.
        chance = np.log2(erf(np.exp(norms) / (2 * math.sqrt(2) * lwe.error)) + 1e-300).sum()
        guesses = share * zeta * math.log2(lwe.support or 2)
        return add(cost(beta, d), guesses + 2 * math.log2(d)) - float(chance)

    found, zeta = least_of(bits, 0, min(lwe.n - 50, 400))
    return found, least_of(lambda beta: guess(zeta, beta), 40, 2 * lwe.n)[1], zeta


def add(a: float, b: float) -> float:
    """log2(2^a + 2^b)."""
    high, low = max(a, b), min(a, b)
    return high if math.isinf(high) else high + math.log2(1 + 2.0 ** (low - high))


def least_of(function: Callable[[int], float], low: int, high: int) -> tuple[float, int]:
    """The least value in [low, high], and its place, of a function with one valley."""
    step = max(1, (high - low) // 24)
    best = low
    while True:
        places = sorted({*range(low, high + 1, step), low, high, best})
        best = min(places, key=function)
        if step == 1:
            return function(best), best
        low, high = max(low, best - step), min(high, best + step)
        step = max(1, step // 12)


ATTACKS: dict[str, Callable[[Lwe, Cost], tuple[float, ...]]] = {
    "primal (uSVP)": primal,
    "dual": dual,
    "dual hybrid": hybrid,
    "primal hybrid": primal_hybrid,
    "primal hybrid, bound": lambda lwe, cost: primal_hybrid(lwe, cost, 0.5),
}


def binary(n: int, deviation: float) -> Lwe:
    """A binary secret modulo 2^64; deviation as a fraction of the torus."""
    return Lwe(n, 64, 0.5, deviation * 2.0**64)


def problems() -> dict[str, Lwe]:
    """Of the rule's circuits at 2^-40 and 2^-128, three contributors."""
    import fhe
    from fhe.compiled import compiled_rule
    from fhe.lwe_layout import input_type, read_specs
    from fhe.public_noise import variance_of

    found = {}
    for failure in (40, 128):
        rule = compiled_rule(
            fhe.RuleParameters(contributors=3, classes=5, bits=6, block=1, failure_exponent=failure)
        )
        kind, keyset = input_type(rule.specs), read_specs(rule.specs)["keyset"]
        name = f"2^-{failure}"
        found[f"{name}: contribution, public key"] = binary(
            kind.dimension, math.sqrt(variance_of(kind))
        )
        found[f"{name}: evaluation key, bootstrap"] = binary(
            kind.dimension, math.sqrt(kind.variance)
        )
        for each in keyset["lweKeyswitchKeys"]:
            p = each["params"]
            found[f"{name}: evaluation key, key switch"] = binary(
                p["outputLweDimension"], math.sqrt(p["variance"])
            )
    found["TFHE-rs at k N = 2048"] = binary(2048, 2.845267479601915e-15)
    return found


@benchmark("how hard are contributions and keys to break by known lattice attacks?")
def main(run: Run) -> None:
    """Estimates primal, dual and hybrid attacks on contributions and keys."""
    run.progress("compiling")
    for name, lwe in problems().items():
        run.progress(name)
        title = f"{name}: n {lwe.n}, deviation 2^{math.log2(lwe.error) - 64:.2f}"
        table = run.table(title, ["attack", "bits (sieve)", "bits (core)", "block size"])
        for attack, estimate in ATTACKS.items():
            if run.quick and "hybrid" in attack:
                continue
            slow, fast = estimate(lwe, sieve), estimate(lwe, core)
            table.add(attack, round(slow[0], 1), round(fast[0], 1), int(slow[1]))
    run.note("sieve: 0.292 beta + 16.4 + log2(8 d) bits a reduction; core: 0.292 beta")
    run.note("an estimate of known attacks, no proof")
    if run.quick:
        run.note("--quick: without the hybrid attacks")


if __name__ == "__main__":
    main()
