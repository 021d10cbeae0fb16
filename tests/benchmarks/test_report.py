"""Saved results and the page that puts them beside the papers' figures."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._drawings import MEASURED, PRINTED
from benchmarks._harness import Run, Table, benchmark
from benchmarks._papers import PAPER_TABLES
from benchmarks._report import render
from benchmarks._results import FORMAT_VERSION, load, load_folder, save
from cli.bench import questions
from secure_fl.errors import InputError

SECUREFL = Path(sys.executable).parent / "securefl"

TEXTS = {
    "Kumar": "kahm.txt",
    "FedNewton": "fednewton.txt",
    "Wei": "fedavgr.txt",
    "FedRCO": "fedrco.txt",
}


def content(benchmark="kahm_speed", **changes):
    rows = [{"method": "a", "seconds": 0.25}, {"method": "<b>", "seconds": None}]
    return {
        "format": FORMAT_VERSION,
        "benchmark": benchmark,
        "question": "how fast?",
        "quick": False,
        "parameters": {"clients": 3},
        "seeds": [0, 1],
        "environment": {
            "processor": "a processor",
            "cores": 2,
            "memory_bytes": 2**33,
            "revision": "abc123",
            "time": "2026-01-02T03:04:05+00:00",
            "versions": {"numpy": "1.26.4"},
        },
        "seconds": 12.5,
        "peak_memory_bytes": 1,
        "results": {"speed": {"columns": ["method", "seconds"], "rows": rows}},
        "notes": ["a remark"],
        **changes,
    }


def epsilon_table():
    columns = ["epsilon per element", "no smoothing", "default smoothing", "oracle"]
    rows = [
        dict(zip(columns, row, strict=True))
        for row in (
            ("1", "70.8 ± 0.5", "71.5 ± 0.3", "71.5 ± 0.2"),
            ("8", "78.5 ± 0.2", "78.5 ± 0.2", "78.5 ± 0.2"),
            ("no privacy", "78.8 ± 0.4", None, None),
        )
    ]
    return {"test accuracy %, 20 Newsgroups": {"columns": columns, "rows": rows}}


def test_a_result_comes_back_as_it_was_saved(tmp_path):
    result = load(save(tmp_path, content()))
    assert result.benchmark == "kahm_speed"
    assert result.seeds == (0, 1)
    assert result.tables == (Table("speed", ("method", "seconds"), [["a", 0.25], ["<b>", None]]),)
    assert result.machine == "a processor, 2 cores, 8 GiB"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 99}, "format version 99"),
        ({"results": []}, "not a result"),
        ({"results": {"t": {"columns": ["a"], "rows": [{}]}}}, "not a result"),
        ({"results": {"t": {"columns": ["a"], "rows": [{"a": [1]}]}}}, "not a result"),
        ({"seeds": None}, "not a result"),
    ],
)
def test_a_file_that_is_no_result_is_named(tmp_path, change, words):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content(**change)))
    with pytest.raises(InputError, match=words) as caught:
        load_folder(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\x00"])
def test_bytes_that_are_no_json_are_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=r"x\.json"):
        load_folder(tmp_path)


def test_every_table_says_where_its_figures_come_from(tmp_path):
    saved = content("privacy_utility", results=epsilon_table())
    results = {"privacy_utility": load(save(tmp_path, saved))}
    page = render(results, {"privacy_utility": "asks", "fhe": "asks too"})
    tables = re.findall(r"<table.*?</table></div>(.{0,60})", page, re.DOTALL)
    *_, claims, _places, measured, printed = tables
    assert f"<b>{MEASURED}</b>" in claims
    assert f"<b>{MEASURED}</b>" in measured
    assert f"<b>{PRINTED}</b>" in printed
    assert "revision abc123" in page
    assert "83.05" in page


def test_figures_of_a_paper_never_stand_under_measured_here(tmp_path):
    """Cut at each paper's block, what is left holds none of the paper's accuracies."""
    saved = content("privacy_utility", results=epsilon_table())
    page = render({"privacy_utility": load(save(tmp_path, saved))}, {})
    rest = re.sub(r'<div class="paper">.*?</table></div>', "", page, flags=re.DOTALL)
    rest = re.sub(r"<svg.*?</svg>", "", rest, flags=re.DOTALL)
    for number in ("69.46", "74.55", "83.05"):
        assert number in page
        assert number not in rest


def test_what_was_not_run_is_listed(tmp_path):
    page = render({"kahm_speed": load(save(tmp_path, content()))}, questions())
    listed = page[page.index("Not run") : page.index('<section id="bench-kahm_speed"')]
    for name, question in questions().items():
        assert (f"{name}: " in listed) == (name != "kahm_speed"), question
    assert "No paper prints figures for this question." in page


def test_names_in_results_are_text_and_not_markup(tmp_path):
    page = render({"kahm_speed": load(save(tmp_path, content()))}, {})
    assert "&lt;b&gt;" in page
    assert '<td class="text"><b>' not in page


def test_a_short_run_is_marked(tmp_path):
    page = render({"kahm_speed": load(save(tmp_path, content(quick=True)))}, {})
    assert "A short run" in page


@pytest.mark.parametrize("table", PAPER_TABLES, ids=lambda t: f"{t.benchmark}-{t.number}")
def test_every_figure_of_a_paper_stands_in_its_table(shared, table):
    """The oracle is the paper's own text: each row's figures in one line near the caption."""
    (name,) = [file for start, file in TEXTS.items() if table.paper.startswith(start)]
    text = (shared / "papers" / name).read_text(encoding="utf-8")
    text = re.sub(r" \\pm ", "±", text)
    text = re.sub(r"</?\w+>|<\|[^|>]*\|>|[*$\\]", "", text)
    lines = text.splitlines()
    (caption, *_) = [i for i, line in enumerate(lines) if line.startswith(f"{table.number}")]
    near = lines[max(0, caption - 22) : caption + 30]
    for row in table.rows:
        figures = [str(cell) for cell in row[1:]]
        pattern = [_number_pattern(figure) for figure in figures]
        assert any(_holds(line, pattern) for line in near), row


def _number_pattern(figure):
    # Trailing zeros may be printed or not.
    return re.escape(figure) + r"0*(?![\d])"


def _holds(line, patterns):
    return all(re.search(rf"(?<![\d.]){pattern}", line) for pattern in patterns)


def rates(name, seeds, **parameters):
    rows = [{"data": name, "rate": 0.1}]
    tables = {"rates": {"columns": ["data", "rate"], "rows": rows}}
    told = {"rounds": 300, **parameters}
    return content("fedavgr_tables", seeds=seeds, results=tables, parameters=told, notes=["same"])


def test_parts_of_a_benchmark_are_read_as_one_result(tmp_path):
    save(tmp_path, rates("vehicle", [0, 1], minutes=30), "vehicle")
    save(tmp_path, rates("splice", [1, 2], minutes=90), "splice")
    found = load_folder(tmp_path)["fedavgr_tables"]
    assert found.tables[0].rows == [["splice", 0.1], ["vehicle", 0.1]]
    assert found.seeds == (0, 1, 2)
    assert found.seconds == 25.0
    # In what parts differ nothing may be judged.
    assert found.parameters == {"rounds": 300}
    assert found.notes == (
        "same",
        "fedavgr_tables.splice.json: a processor, 2 cores, 8 GiB, revision abc123, minutes 90",
        "fedavgr_tables.vehicle.json: a processor, 2 cores, 8 GiB, revision abc123, minutes 30",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quick": True}, "a short run beside a full one"),
        ({"results": {"rates": {"columns": ["a"], "rows": []}}}, "are not those of"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(tmp_path, change, words):
    save(tmp_path, rates("splice", [0]), "splice")
    save(tmp_path, {**rates("vehicle", [0]), **change}, "vehicle")
    with pytest.raises(InputError, match=words):
        load_folder(tmp_path)


def test_what_a_benchmark_prints_can_be_put_into_the_folder(tmp_path, capsys):
    @benchmark("how many?")
    def main(run):
        run.table("counts", ["n"]).add(3)

    main(["--json"], standalone_mode=False)
    (tmp_path / "any.json").write_text(capsys.readouterr().out)
    (found,) = load_folder(tmp_path).values()
    assert (found.benchmark, found.tables[0].rows) == ("test_report", [[3]])


@pytest.mark.slow  # a benchmark in a process; every day the page is made of saved ones
def test_run_saves_what_the_benchmark_printed(tmp_path):
    """The quickest of them, through the command, in a folder that has a `benchmarks` of its own."""
    decoy = tmp_path / "benchmarks"
    decoy.mkdir()
    (decoy / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    run = (SECUREFL, "bench", "run", "dp_samplers")
    done = subprocess.run(
        [*run, "--part", "a", "--out", "kept", "--json", "--", "--quick"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["saved"]) == ["dp_samplers"]
    result = load(tmp_path / "kept" / "dp_samplers.a.json")
    assert result.quick
    assert result.tables[0].rows
    report = subprocess.run(
        [SECUREFL, "bench", "report", "kept", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert report.returncode == 0, report.stderr
    assert "kahm_accuracy" in json.loads(report.stdout)["not_run"]
    assert MEASURED in (tmp_path / "benchmarks.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "name a benchmark"),
        (["run", "nothing"], "no benchmark 'nothing'"),
        (["run", "folding", "kahm_speed", "--part", "a"], "are of one benchmark"),
        (["run", "--all", "--", "--data", "vehicle"], "are of one benchmark"),
        (["run", "folding", "--part", "../a"], "expected letters, digits"),
        (["report", "."], "holds no result"),
    ],
)
def test_bad_usage_is_one_line(tmp_path, arguments, words):
    done = subprocess.run(
        [SECUREFL, "bench", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_benchmark_without_its_data_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("SECUREFL_DATA", str(tmp_path))
    done = subprocess.run(
        [SECUREFL, "bench", "run", "kahm_speed", "--quick", "--out", tmp_path / "kept"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "kahm_speed: failed with exit code 2" in done.stdout
    assert not (tmp_path / "kept").exists()


def test_runs_of_fedrco_are_drawn_by_round_and_by_second(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    columns = ["partition", "clients", "method", "round", "seconds", "global", "personal"]
    rows = [
        dict(zip(columns, row, strict=True))
        for row in (
            ("Dirichlet 0.1", 10, "FedAvg", 5, 1.0, 40.0, None),
            ("Dirichlet 0.1", 10, "FedAvg", 10, 2.0, 60.0, None),
            ("Dirichlet 0.1", 10, "FedRCO", 5, 3.0, 70.0, 50.0),
            ("2 classes", 50, "FedRCO", 5, 3.0, 30.0, 20.0),
        )
    ]
    tables = {"accuracy by round and second": {"columns": columns, "rows": rows}}
    page = render(
        {"fedrco_tables": load(save(tmp_path, content("fedrco_tables", results=tables)))}, {}
    )
    for words in ("Dirichlet 0.1, 10 clients (measured here)", "2 classes, 50 clients"):
        assert words in page
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    # Where a method has own models, the paper's accuracy is theirs.
    assert ["FedRCO, own models" in svg for svg in drawn] == [True] * 4
    assert [">FedAvg<" in svg for svg in drawn] == [True, True, False, False]


def test_the_course_of_figure_2_is_drawn_of_the_saved_table(tmp_path):
    pytest.importorskip("matplotlib")
    columns = ["method", "gamma", "seeds", "round", "distance", "within classes", "accuracy, %"]
    rows = [
        dict(zip(columns, (method, 0.1, 3, at, "7.10 ± 0.10", "3.10 ± 0.10", "80.00"), strict=True))
        for method in ("FedAvg", "MMD", "MMD, largest weight", "all terms, MMD by class")
        for at in (0, 30, 60, 100)
    ]
    name = "distance of the clients' mean features, (u, v) = (1, 1)"
    saved = content("fedavgr_synthetic", results={name: {"columns": columns, "rows": rows}})
    page = render({"fedavgr_synthetic": load(save(tmp_path, saved))}, {})
    drawings = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(drawings) == 2
    for drawing, label in zip(drawings, ("distance", "within classes"), strict=True):
        assert f">{label}<" in drawing
        assert all(f">{each}<" in drawing for each in ("FedAvg", "MMD, largest weight"))
        assert ">MMD<" not in drawing
    assert "96.23" in page


GAPS = (
    "figure",
    "data",
    "method",
    "round",
    "bits sent by a node",
    "bits both ways",
    "f(x) - f(x*)",
)


def gaps():
    rows = [
        dict(
            zip(
                GAPS,
                (figure, "a1a", method, at, 1e6 * at, 2e6 * at, 10.0 ** (-5 * at)),
                strict=True,
            )
        )
        for figure, methods in (("4", ("Rank-1", "Top-d")), ("8", ("tau = 1 n",)))
        for method in methods
        for at in range(3)
    ]
    return {"points of figures": {"columns": list(GAPS), "rows": rows, "drawn": True}}


def test_points_of_curves_are_drawn_and_not_listed(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    saved = save(tmp_path, content("fednl_variants", results=gaps()))
    page = render({"fednl_variants": load(saved)}, {})
    section = page[page.index('id="bench-fednl_variants"') :]
    assert "<table" not in section.partition("machine, versions")[0]
    assert section.count("<figure>") == 2
    for words in ("figure 4, a1a", "million bits sent by a node", "Rank-1", "figure 8, a1a"):
        assert f">{words}<" in section
    # Figure 8 has rounds below it, as the paper's.
    assert section.count(">round<") == 1


def test_points_of_curves_are_saved_and_not_printed(capsys):
    run = Run("test", quick=True, as_json=False)
    run.table("shown", ["a"]).add(1)
    run.points("curve", ["x", "y"]).add(1, 2.0)
    run.show("?")
    printed = capsys.readouterr().out
    assert "shown" in printed
    assert "curve" not in printed
    kept = run.as_dict("?")["results"]
    assert kept["curve"] == {"columns": ["x", "y"], "rows": [{"x": 1, "y": 2.0}], "drawn": True}
    assert kept["shown"]["drawn"] is False


def test_parts_of_a_benchmark_join_their_points(tmp_path):
    for part in ("a", "b"):
        save(tmp_path, content("fednl_variants", results=gaps()), part)
    (table,) = load_folder(tmp_path)["fednl_variants"].tables
    assert (table.drawn, len(table.rows)) == (True, 18)


def newton_rows():
    columns = ("figure", "clients", "records a client", "method", "at once")
    columns += ("round 1", "round 2", "round 4", "round 8")
    rows = []
    for figure, clients in (("3", 5), ("3", 60), ("5", 10)):
        where = (figure, clients, 60_000 // clients)
        rows.append((*where, "pooled ridge regression", "95.2", None, None, None, None))
        rows.append((*where, "DKRR", "94.5", None, None, None, None))
        rows.append((*where, "FedNewton as printed", None, "94.0", "80.0", "20.0", "6.0"))
        rows.append((*where, "FedNewton, safeguard", None, "95.0", "95.1", "95.1", "95.2"))
    for rival in ("FedAvg, 2 steps", "FedProx, exact local solutions"):
        rows.append(("5", 10, 6_000, rival, None, "94.5", "94.5", "94.6", "94.6"))
    rows = [dict(zip(columns, row, strict=True)) for row in rows]
    return {"test accuracy in percent": {"columns": list(columns), "rows": rows}}


def test_fednewtons_curves_are_drawn_of_the_saved_table(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    saved = content("fednewton_mnist", results=newton_rows(), parameters={"records": 60_000})
    page = render({"fednewton_mnist": load(save(tmp_path, saved))}, {})
    section = page[page.index('id="bench-fednewton_mnist"') :]
    assert section.count("<figure>") == 2
    for words in ("figure 3", "records a client", "figure 5, 10 clients", "printed, round 8"):
        assert f">{words}<" in section


def test_a_heads_curves_are_drawn_by_round_and_by_second(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    tables = {
        "test accuracy in percent by round": ("data", "alpha", "method", "round 1", "round 10"),
        "mnist: test accuracy in percent by time": ("alpha", "method", "0.5 s", "20 s"),
    }
    cells = {"data": "mnist", "alpha": 0.1, "method": "FedAvg"}
    results = {
        name: {
            "columns": list(columns),
            "rows": [{column: cells.get(column, "50.1 ± 0.2") for column in columns}],
        }
        for name, columns in tables.items()
    }
    page = render(
        {"head_tuning": load(save(tmp_path, content("head_tuning", results=results)))}, {}
    )
    section = page[page.index('id="bench-head_tuning"') :]
    assert section.count("<figure>") == 2
    assert section.count(">mnist, alpha 0.1<") == 2
    for words in ("round", "seconds of training"):
        assert f">{words}<" in section


def test_a_run_by_class_joins_with_those_that_have_none(tmp_path):
    from benchmarks import fedavgr_tables as tables
    from benchmarks._regularised import OF_CLASSES

    methods = (*tables.METHODS, tables.NONE, *tables.SINGLE.values(), *OF_CLASSES)
    for part, more in (("vehicle", OF_CLASSES), ("satimage", ())):
        run = Run("fedavgr_tables", quick=False, as_json=True)
        found = {seed: dict.fromkeys(methods, 70.0 + seed) for seed in (0, 1)}
        tables._show(run, {part: found}, more)
        save(tmp_path, run.as_dict("?"), part)
    joined = load_folder(tmp_path)["fedavgr_tables"]
    single, by_class = (joined.table(each) for each in ("regularisers one", "the MMD by class"))
    assert [row[0] for row in single.rows] == ["satimage", "vehicle"]
    assert [row[0] for row in by_class.rows] == ["vehicle"]
    assert len(by_class.rows[0]) == 2 + len(OF_CLASSES)
