"""FedRCO's studies: what is kept of them, how far they go, and what their tables say."""

import json
import math
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks import _drawings, fedrco_studies, fedrco_tables
from benchmarks import _fedrco_gradients as gradients
from benchmarks._data import REPOSITORY
from benchmarks._fedrco import DIVISIONS, UNWATCHED, Task, measured, parts_of, split_of
from benchmarks._fedrco_claims import COMPARED, TABLE_1
from benchmarks._fedrco_curves import Curve
from benchmarks._fedrco_kept import Keep
from benchmarks._fedrco_legs import legs, went
from benchmarks._fedrco_studies import (
    SEARCHED,
    STUDIES,
    chosen,
    given_rates,
    limited,
    read_rates,
    to_search,
)
from benchmarks._fedrco_views import seconds_on
from benchmarks._harness import Run
from benchmarks._report import render
from benchmarks._results import FORMAT_VERSION, Result
from secure_fl.errors import InputError
from secure_fl.trainers.networks import Monitor, Thresholds

TASK = Task("Dirichlet 0.5", 4, "FedRCO", 3, "cpu", 0.05, data="digits", participation=0.5)
TIMES = ("seconds", "seconds computing", "inverting %")


@pytest.fixture(autouse=True)
def threads():
    """A run takes one thread for torch and leaves it so."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def timeless(curve):
    return replace(curve, seconds=[], inverting=0.0)


# -------------------------------------------------------------------------------------- kept runs


def results(*options):
    done = CliRunner().invoke(
        fedrco_studies.main, ["--json", "--quick", "--workers", "1", *options]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["results"]
    for table in found.values():
        for row in table["rows"]:
            for column in TIMES:
                row.pop(column, None)
    return found


def test_a_study_that_was_killed_goes_on_to_the_same_results(tmp_path):
    study = ("--study", "gradients", "--study", "clients", "--device", "cpu")
    command = [sys.executable, "-m", "tests.benchmarks.killed_study", "9", "--json", "--quick"]
    folder = ("--resume", str(tmp_path / "runs"))
    killed = subprocess.run(
        [*command, "--workers", "1", *study, *folder],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    names = Counter(path.suffix for path in (tmp_path / "runs").iterdir())
    assert names[".checkpoint"] == 2, "one run to its first leg, one on its way there"
    assert names[".json"] == 1
    assert results(*study, *folder) == results(*study)


def test_a_run_goes_on_round_by_round_to_the_same_curve(tmp_path):
    whole = measured(TASK)
    keep = Keep(tmp_path)
    for rounds in (1, 2):
        before = measured(replace(TASK, rounds=rounds), keep)
    curve = measured(TASK, keep)
    # No two rounds take the same time: the first ones were not run again.
    assert curve.seconds[:2] == before.seconds
    assert curve.own[3] == whole.own[3]
    assert timeless(replace(curve, own={})) == timeless(replace(whole, own={}))
    assert measured(TASK, keep) == curve


def test_a_run_whose_time_is_over_ends_between_two_rounds_and_is_not_kept(tmp_path):
    late = measured(TASK, Keep(tmp_path, until=0.0))
    assert (late.shared, late.refused) == ([], False)
    assert list(tmp_path.iterdir()) == []


def kept(folder):
    keep = Keep(folder)
    measured(replace(TASK, method="FedAvg", rounds=1), keep)
    (path,) = folder.glob("*.json")
    return keep, path, json.loads(path.read_text())


def refusal(keep):
    with pytest.raises(InputError) as error:
        measured(replace(TASK, method="FedAvg", rounds=1), keep)
    return str(error.value)


def test_a_kept_run_that_is_damaged_or_of_something_else_is_refused_in_one_line(tmp_path):
    keep, path, content = kept(tmp_path)
    content["curve"]["shared"][0] += 1.0
    path.write_text(json.dumps(content))
    assert refusal(keep) == (
        f"{path}: damaged, its digest is not that of its content; delete it, and the run is made"
        " anew"
    )
    path.write_text(json.dumps({"format": 7}))
    assert refusal(keep) == (
        f"{path}: not a kept run of format 1; delete it, and the run is made anew"
    )
    path.write_text("{")
    assert refusal(keep).startswith(f"{path}: cannot be read as JSON")


def test_a_kept_run_of_other_settings_or_of_another_task_is_refused(tmp_path):
    keep, path, content = kept(tmp_path)
    task, curve = content["run"]["task"], Curve.of_json(content["curve"])
    other = {**content["run"]["settings"], "training.steps": "30"}
    path.unlink()
    keep.finish({"task": task, "settings": other}, curve)
    assert refusal(keep) == (
        f"{path}: a run of other settings (training.steps was 30, is 20); go on with the same, or"
        " give another folder"
    )
    measured(replace(TASK, method="FedAvg", rounds=2), keep)
    (longer,) = tmp_path.glob("*-2.json")
    longer.rename(path)
    assert "(rounds was 2, is 1)" in refusal(keep)


def test_a_checkpoint_of_something_else_is_refused_in_one_line(tmp_path):
    keep, path, _ = kept(tmp_path)
    (checkpoint,) = tmp_path.glob("*.checkpoint")
    path.unlink()
    checkpoint.write_bytes(b"nothing of the kind")
    with pytest.raises(Exception, match=str(checkpoint)) as error:
        measured(replace(TASK, method="FedAvg", rounds=1), keep)
    assert len(str(error.value).splitlines()) == 1


def test_tables_have_the_same_curves_with_a_folder_and_without(tmp_path):
    run = Run("fedrco_studies", quick=False, as_json=True)
    tasks = [replace(TASK, method=method) for method in ("FedAvg", "FedPM", "local only")]
    whole = fedrco_tables._curves(run, tasks, map, None)
    found = fedrco_tables._curves(run, tasks, map, Keep(tmp_path))
    assert list(found) == tasks
    assert {t: timeless(c) for t, c in found.items()} == {t: timeless(c) for t, c in whole.items()}


# ------------------------------------------------------------------------------------------- legs


@pytest.mark.parametrize(
    ("rounds", "stops"), [(3, [3]), (5, [5]), (60, [5, 25, 50, 60]), (100, [5, 25, 50, 100])]
)
def test_legs_end_with_the_last_round(rounds, stops):
    assert legs(rounds) == stops


def test_runs_side_by_side_stop_at_the_same_round_and_one_that_is_refused_holds_up_none(tmp_path):
    """At a rate of 1e30 no update is finite."""
    common = replace(TASK, method="FedAvg", rounds=7, participation=1.0)
    wild = replace(common, rate=1e30)
    short = replace(common, rounds=2)
    run = Run("fedrco_studies", quick=True, as_json=True)
    groups = {"a": [common, wild], "b": [common, short]}
    found = went(run, groups, Keep(tmp_path), map)
    assert [len(found["a"][task].curve.shared) for task in (common, wild)] == [7, 0]
    assert found["a"][wild].curve.refused
    assert [found["b"][task].reached for task in (common, short)] == [7, 2]


def test_runs_that_went_apart_are_shown_where_all_of_them_were(tmp_path):
    far = replace(TASK, method="FedAvg", rounds=27, participation=1.0)
    near = replace(far, rate=0.1)
    run, keep, over = (
        Run("fedrco_studies", quick=True, as_json=True),
        Keep(tmp_path),
        Keep(tmp_path, until=0.0),
    )
    went(run, {"a": [far], "b": [replace(near, rounds=7)]}, keep, map)
    found = went(run, {"both": [far, near], "one": [far]}, over, map)
    assert [(len(w.curve.shared), w.reached) for w in found["both"].values()] == [(5, 27), (5, 7)]
    assert [(len(w.curve.shared), w.reached) for w in found["one"].values()] == [(27, 27)]
    assert went(run, {"none": [replace(far, rate=0.3)]}, over, map) == {"none": {}}


# ------------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize("name", DIVISIONS)
def test_a_partition_has_the_skew_of_its_name(name):
    data = split_of("digits")
    clients = parts_of("digits", name, 10, 0)
    assert sum(map(len, clients)) == len(data.y_train)
    classes = {len(set(client.targets.tolist())) for client in clients}
    sizes = [len(client) for client in clients]
    match name.split():
        case [k, "classes"]:
            assert classes == {int(k)}
        case ["IID"]:
            assert max(sizes) - min(sizes) <= 1
            assert classes == {10}
        case _:
            assert min(sizes) >= 32


def test_skew_falls_with_alpha():
    def largest_share(alpha):
        clients = parts_of("digits", f"Dirichlet {alpha}", 10, 0)
        return np.mean([max(Counter(c.targets.tolist()).values()) / len(c) for c in clients])

    assert largest_share("0.1") > largest_share("0.5") > largest_share("1")


# ------------------------------------------------------------------------------------------ rates


def saved(path, **changes):
    columns = ["partition", "clients", "method", "rate"]
    rows = [
        {"partition": "2 classes", "clients": 10, "method": "FedRCO", "rate": 0.006},
        {"partition": "2 classes", "clients": 50, "method": "FedRCO", "rate": 0.003},
    ]
    content = {
        "format": FORMAT_VERSION,
        "benchmark": "fedrco_tables",
        "question": "?",
        "quick": False,
        "parameters": {},
        "seeds": [0],
        "environment": {},
        "seconds": 1.0,
        "results": {"accuracy in percent after the last round": {"columns": columns, "rows": rows}},
        "notes": [],
    }
    path.write_text(json.dumps({**content, **changes}))
    return path


def test_rates_are_those_given_then_those_of_a_saved_run_then_the_documented_ones(tmp_path):
    read = read_rates(saved(tmp_path / "fedrco_tables.json"))
    keys = [("mnist", method, n) for method in ("FedAvg", "FedPM", "FedRCO") for n in (10, 50, 100)]
    found = chosen(keys, given_rates(["FedAvg=0.7"]), read, "saved.json")
    documented = [SEARCHED[n]["FedPM"] for n in (10, 50, 100)]
    own = [0.006, 0.003, SEARCHED[100]["FedRCO"]]
    assert [found[key].value for key in keys] == [0.7] * 3 + documented + own
    assert found["mnist", "FedPM", 100].source == "docs/networks.md"
    assert found["mnist", "FedRCO", 100].source == "docs/networks.md"
    assert found["mnist", "FedPM", 50].source == "docs/networks.md"
    assert found["mnist", "FedRCO", 50].source == "saved.json"
    keys = [("mnist", "FedRCO", 20), ("mnist", "FedRCO", 40), ("mnist", "FedPM", 20)]
    keys.append(("mnist", "FedAdam", 100))
    other = chosen([*keys, ("digits", "FedRCO", 20)], {}, read, "saved.json")
    assert [(each.value, each.source) for each in other.values()] == [
        (0.006, "saved.json, of 10 clients"),
        (0.003, "saved.json, of 50 clients"),
        (SEARCHED[10]["FedPM"], "docs/networks.md, of 10 clients"),
        (SEARCHED[50]["FedAdam"], "docs/networks.md, of 50 clients"),
        (SEARCHED[10]["FedRCO"], "docs/networks.md, of 10 clients"),
    ]
    with pytest.raises(InputError, match="not a full run of fedrco_tables"):
        read_rates(saved(tmp_path / "short.json", quick=True))
    for text in ("FedAvg", "FedAvg=0", "FedAvg=x", "Other=1", "FedAvg=inf"):
        with pytest.raises(InputError, match="expected METHOD=RATE"):
            given_rates([text])


def test_searched_are_the_rates_that_nobody_gave_the_longest_first(tmp_path):
    read = read_rates(saved(tmp_path / "fedrco_tables.json"))
    keys = [("mnist", m, n) for n in (10, 50) for m in ("FedAvg", "FedPM", "FedRCO")]
    keys.append(("cifar10", "FedRCO", 10))
    known = chosen(keys, given_rates(["FedPM=0.7"]), read, "saved.json")
    assert to_search(known, again=False) == [("cifar10", "FedRCO", 10)]
    assert to_search(known, again=True) == [
        ("mnist", "FedAvg", 50),
        ("cifar10", "FedRCO", 10),
        ("mnist", "FedAvg", 10),
    ]


def test_a_study_may_run_some_of_its_methods_alone():
    found = limited({"partitions": STUDIES["partitions"]}, ["FedRCO", "FedAvg"])
    assert found["partitions"].methods == ("FedAvg", "FedRCO")
    with pytest.raises(InputError, match="participation has none of FedPM; it has FedAvg"):
        limited({"participation": STUDIES["participation"]}, ["FedPM"])


def test_the_documented_rates_are_those_that_the_studies_take():
    text = (REPOSITORY / "docs" / "networks.md").read_text(encoding="utf-8")
    table = text.partition("| method | rate | global | own mix | rounds")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()[2:]]
    assert {row[1]: float(row[2]) for row in rows if row[1] in SEARCHED[10]} == SEARCHED[10]
    table = text.partition("| searched with |")[2].partition("\n\n")[0]
    names, _, *rows = ([cell.strip() for cell in line.split("|")] for line in table.splitlines())
    by_number = {
        int(number.split()[0]): {
            m: float(rate) for m, rate in zip(names, rates, strict=True) if rate
        }
        for _, number, *rates in rows
    }
    assert by_number == SEARCHED


# -------------------------------------------------------------------------------------- gradients


def course(norms, monitored):
    """Rows as a client keeps them, judged by the library's own monitor."""
    monitor, rows = Monitor(Thresholds()), []
    for norm in norms:
        verdict = monitor.judge(norm) if monitored else "step"
        place = ("step", "rollback", "reset").index(verdict)
        applied = (norm, min(norm, 10.0), 0.0)[place]
        cell = norm if math.isfinite(norm) else None
        rows.append([0.0, 1.0, cell, cell, None if cell is None else applied, float(place)])
        if place == 2:
            rows[-1][4] = 0.0
    return rows


def test_scores_are_those_by_which_the_monitor_judges():
    rng = np.random.default_rng(0)
    norms = np.exp(rng.normal(0.0, 2.5, 400)).tolist()
    norms[50] = math.inf
    rows = course(norms, monitored=True)
    scores = gradients.scores(rows)
    verdicts = [row[5] for row in rows]
    assert [score > 10 for score in scores] == [verdict > 0 for verdict in verdicts]
    assert {0.0, 1.0, 2.0} == set(verdicts)


def test_of_many_steps_the_largest_in_a_row_are_shown():
    rows = course([1.0, 5.0, 2.0, 3.0, math.inf, 4.0, 6.0], monitored=False)
    assert [number for number, _ in gradients.thinned(rows, most=3)] == [2, 5, 7]
    assert [number for number, _ in gradients.thinned(rows)] == [1, 2, 3, 4, 5, 6, 7]


def ran(norms, monitored):
    """A run of clients whose steps have these norms, by name."""
    steps = {name: course(each, monitored) for name, each in norms.items()}
    return Curve([50.0], [1.0], {}, (0, 0, 0), 0.0, steps=steps)


def traced(norms, monitored):
    return ran({"a": [1.0] * len(norms), "b": norms}, monitored)


def test_norms_are_counted_over_all_clients_and_one_course_is_shown_and_drawn(
    tmp_path, monkeypatch
):
    norms = [2.0] * 10 + [30.0, 5000.0, 2.0]
    curves = {(0.1, "FedRCO"): traced(norms, True), (0.1, UNWATCHED): traced(norms, False)}
    run = Run("fedrco_studies", quick=False, as_json=True)
    gradients.show(run, curves)
    spread, shown = (table.as_json()["rows"] for table in run.tables)
    watched, free = spread
    assert (watched["steps"], watched["rollbacks"], watched["resets"]) == (26, 1, 1)
    assert (watched["largest"], watched["largest applied"]) == (5000.0, 10.0)
    assert (free["largest applied"], free["above 10"], free["50 %"]) == (5000.0, 2, 1.0)
    assert (free["above 10 x the last ten"], free["above 1000 x"]) == (2, 1)
    assert {row["client"] for row in shown} == {"b"}
    assert [row["verdict"] for row in shown[:13]][10:] == ["rollback", "reset", "step"]
    monkeypatch.setattr(_drawings, "DOCS", tmp_path)
    gradients.save_figure(run, run.tables[1].rows)
    assert run.notes[-1] == "plot: fedrco_gradients.svg"
    text = (tmp_path / "fedrco_gradients.svg").read_text(encoding="utf-8")
    assert all(label in text for label in ("rollback", "reset", "without the monitor"))


def test_the_course_shown_is_of_the_client_that_needs_the_monitor_most():
    """Before rollbacks count resets, and before these steps that no number has without it."""
    calm, rolled, reset = [1.0] * 14, [1.0] * 10 + [30.0] * 4, [1.0] * 10 + [5000.0, 1.0, 1.0, 1.0]
    broken = [1.0] * 13 + [math.inf]
    watched = {(0.1, "FedRCO"): ran({"a": calm, "b": rolled, "c": reset}, True)}
    assert gradients.shown_client(watched, 0.1) == "c"
    free = {(0.1, UNWATCHED): ran({"a": broken, "b": calm, "c": calm}, False)}
    assert gradients.shown_client({**watched, **free}, 0.1) == "a"
    bounded = {(0.1, "FedRCO"): ran({"a": calm, "b": rolled}, True)}
    assert gradients.shown_client(bounded, 0.1) == "b"
    assert gradients.shown_client({**watched, **free}, 0.2) == ""


def test_the_report_draws_the_course_from_the_saved_table_alone():
    norms = [2.0] * 10 + [30.0, 5000.0, math.inf]
    run = Run("fedrco_studies", quick=False, as_json=True)
    curves = {(0.1, "FedRCO"): traced(norms, True), (0.1, UNWATCHED): traced(norms, False)}
    gradients.show(run, curves)
    saved_run = Result("fedrco_studies", "?", False, tuple(run.tables), (), {}, (0,), {}, 1.0)
    page = render({"fedrco_studies": saved_run}, {})
    assert "Steps of one client with and without the monitor, learning rate 0.1" in page
    assert "not finite without it" in page
    assert "Table 2: FedRCO" in page


# ---------------------------------------------------------------------------------- communication


def test_seconds_on_a_line_are_bits_by_bits_a_second():
    assert seconds_on(10, (1e6, 2.5e5)) == pytest.approx(1.0)
    assert seconds_on(1000, (1e6, 2.5e5)) == pytest.approx(0.01)


def test_every_claim_has_a_study_and_a_number_of_its_own():
    assert len({claim.number for claim in COMPARED}) == len(COMPARED)
    assert {claim.study for claim in COMPARED if claim not in TABLE_1} == set(STUDIES)
