"""A study in a process of its own, which kills itself at the COUNT-th file that it would rename.

python -m tests.benchmarks.killed_study COUNT [OPTION ...]
"""

import functools
import sys

from benchmarks import fedrco_studies
from benchmarks._fedrco_kept import Keep
from tests.secure_fl.federation.killed_run import kill_at

if __name__ == "__main__":
    kill_at("rename", int(sys.argv[1]))
    # A checkpoint after every round, or so short a study would have none.
    every = functools.partial(Keep, every=0.0)
    fedrco_studies.Keep = every  # type: ignore[assignment, misc]  # a maker stands in for the class
    fedrco_studies.main(sys.argv[2:])
