"""The page says what the files say, in the promised order, and nothing of a record."""

import html
import json
import re
import shutil

import numpy as np
import pytest

import dp
import fhe
from kahm import classify
from secure_fl.errors import InputError
from secure_fl.heads.codes import all_codes, rule_parameters
from secure_fl.heads.confidence import set_threshold
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.manifest import save_manifest
from secure_fl.heads.run_folder import all_measures, create_run, load_run, query_features
from secure_fl.heads.statements import load_statement
from secure_fl.report import Sources, gather, render, write_report
from tests.secure_fl.report.conftest import draw_clients, manifest


def page_of(run, **sources):
    return render(gather(Sources(run=run, **sources)))


def text_of(page):
    """What a reader sees, without marks and styles."""
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def numbers_in(page):
    """All decimal numbers of a page, drawings included."""
    return set(re.findall(r"\d+\.\d{3,}", page))


def prints_of(values):
    """How a record's numbers might be printed: rounded or cut, with 3 to 9 digits."""
    found = set()
    for value in values:
        for digits in range(3, 10):
            found |= {f"{value:.{digits}f}", repr(float(value))[: digits + 2]}
    return found


@pytest.mark.parametrize("label_counts", [False, True])
def test_no_record_enters_the_page(clear_run, private_run, test_file, label_counts):
    """Searched with five digits or more: shorter numbers coincide with coordinates of drawings."""
    records = np.concatenate([X.ravel() for _, X, _ in draw_clients()])
    with np.load(test_file) as stored:
        queries = stored["X"].ravel()
    for run in (clear_run, private_run):
        page = page_of(run, test=test_file, label_counts=label_counts)
        (released,) = {load_run(run)[1][0].bank.records.shape[1]}
        assert released == 6
        heads = np.concatenate([head.bank.records.ravel() for head in load_run(run)[1]])
        for private in (records, queries, heads[~np.isin(heads, np.round(heads, 3))]):
            leaked = {p for p in prints_of(private) if len(p) >= 8} & numbers_in(page)
            # A released number may be the public grid step itself, which the statement names.
            assert not leaked - prints_of([2**-8])


def test_the_search_for_records_would_find_one(clear_run):
    """The test above can fail: a page with a record on it does not pass."""
    record = draw_clients()[0][1][0]
    page = page_of(clear_run) + f"<p>{record[0]:.6f}</p>"
    assert {p for p in prints_of(record) if len(p) >= 8} & numbers_in(page)


def test_label_counts_are_shown_only_when_asked_for(clear_run):
    """15 records of each class: the number stands nowhere else."""
    assert "nothing protects them" in text_of(page_of(clear_run))
    shown = text_of(page_of(clear_run, label_counts=True))
    assert "north 30 15 15" in shown
    assert "north 30 15 15" not in text_of(page_of(clear_run))


def test_only_heads_that_are_here_are_counted(clear_run, tmp_path):
    shutil.copytree(clear_run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "clients" / "south")
    text = text_of(page_of(tmp_path / "run", label_counts=True))
    assert "north 30 15 15" in text
    assert "south 30" not in text


def test_sections_come_in_the_order_of_a_privacy_officer(private_run):
    page = page_of(private_run)
    order = re.findall(r'<section id="(\w+)"', page)
    assert order[:3] == ["protected", "parties", "accuracy"]
    assert order[-1] == "sign"


def test_promise_unit_and_ledger_stand_on_the_page(private_run):
    text = text_of(page_of(private_run, ledgers=private_run.parent / "ledgers"))
    unit = dp.Element(0.5).unit
    assert f"epsilon 4, delta 1e-05 per {unit}" in text
    ledger = dp.Ledger.open(private_run.parent / "ledgers" / "north.jsonl")
    total = ledger.get_epsilon(1e-4)
    assert f"north, south {unit} 1 {total.epsilon:.4g} 0.0001 {total.rule} 6" in text
    statement = load_statement(private_run / "clients" / "north" / "statement.json")
    assert statement.record_level[-1].text in text
    assert statement.ledger_digest in text


def test_an_epsilon_never_stands_without_its_unit(private_run):
    text = text_of(page_of(private_run, ledgers=private_run.parent / "ledgers"))
    for match in re.finditer(r"epsilon [\d.]+,", text):
        assert re.match(r" delta [\d.e-]+ per (element|record)", text[match.end() :])


def test_a_run_without_promises_says_so(clear_run):
    text = text_of(page_of(clear_run))
    assert "No differential privacy" in text
    assert "Heads are not releases and hold the clients' records." in text
    assert "yes, with the records in it" in text


def test_a_statement_missing_from_the_ledger_warns(private_run, tmp_path):
    other = tmp_path / "north.jsonl"
    dp.Ledger.create(other, "north")
    text = text_of(page_of(private_run, ledgers=tmp_path))
    assert "A statement is not in its ledger: do not sign." in text


def test_an_edited_ledger_makes_no_page(private_run, tmp_path):
    shutil.copytree(private_run.parent / "ledgers", tmp_path / "ledgers")
    book = tmp_path / "ledgers" / "north.jsonl"
    text = book.read_text()
    book.write_text(text.replace('"epsilon":4.0', '"epsilon":1.0'))
    assert book.read_text() != text
    with pytest.raises(dp.LedgerError):
        page_of(private_run, ledgers=tmp_path / "ledgers")


def test_accuracy_and_confusion_are_those_of_the_rule(clear_run, test_file):
    """The oracle goes from measures of (queries, clients, classes) without the report's code."""
    found = gather(Sources(run=clear_run, test=test_file)).measured
    facts, heads = load_run(clear_run)
    with np.load(test_file) as stored:
        X, truth = stored["X"], np.arange(30) % 2
    measures = all_measures(heads, X, facts)
    exact = classify(measures)
    codes = np.floor(measures.astype(np.float64) * 255 + 0.5)
    coded = codes.min(axis=1).argmin(axis=1)
    assert found.exact == np.mean(exact == truth)
    assert found.coded == np.mean(coded == truth)
    for a in range(2):
        for b in range(2):
            assert found.confusion[a, b] == np.sum((truth == a) & (coded == b))
    assert 0 < found.exact < 1
    assert found.winners.sum() == found.others.sum() == len(truth)
    assert found.agreement[8] == np.mean(coded == exact)


def test_a_range_that_does_not_fit_is_seen(clear_run, test_file, tmp_path):
    from secure_fl.heads.fitting import train_heads
    from secure_fl.heads.run_folder import create_run
    from tests.secure_fl.report.conftest import manifest

    facts = manifest(low=0.9, high=1.0)
    create_run(tmp_path / "run", train_heads(draw_clients(), facts), facts)
    found = gather(Sources(run=tmp_path / "run", test=test_file)).measured
    assert found.clipped_low == 1.0
    assert found.ties == 1.0
    assert found.confusion[:, 1].sum() == 0  # the lowest class wins every tie


def test_accuracy_needs_every_head_and_known_labels(clear_run, test_file, tmp_path):
    shutil.copytree(clear_run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "clients" / "south")
    with pytest.raises(InputError, match="1 of 2 heads are here"):
        gather(Sources(run=tmp_path / "run", test=test_file))
    with np.load(test_file) as stored:
        np.savez(tmp_path / "odd.npz", X=stored["X"], y=np.full(len(stored["y"]), "odd"))
    with pytest.raises(InputError, match='label "odd" is unknown'):
        gather(Sources(run=clear_run, test=tmp_path / "odd.npz"))


def test_rounds_of_a_trainer_are_summed(clear_run, tmp_path):
    lines = [
        {
            "round": i,
            "seconds": 0.5,
            "participants": 2,
            "survivors": 2 - i,
            "sums": 1,
            "bytes_down": 1000,
            "bytes_up": 2_000_000,
            "floats_down": 1,
            "floats_up": 1,
            "clients": {"north": [1, 2, 3, 4]},
            "accuracy": 0.5 + i / 4,
        }
        for i in range(2)
    ]
    log = tmp_path / "rounds.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = text_of(page_of(clear_run, rounds=log))
    assert "MB from clients 4" in text
    assert "aggregator of the trainer" in text
    log.write_text(log.read_text() + '{"round": 2}\n')
    with pytest.raises(InputError, match="line 3: not a round's log"):
        page_of(clear_run, rounds=log)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": "4"}, "not a number"),
        ({"epsilon": -1}, "below 0"),
        ({"bounds": [0]}, "not a privacy statement"),
        ({"delta": None}, "not a number"),
        ({"unit": "element\n"}, "not a line of text"),
        ({"guarantee": 1}, "not true or false"),
        ({"passes": 3}, "not a list"),
        ({"extra": 0}, ".extra. are missing or unknown"),
        ({"record_level": [{}]}, "not a privacy statement"),
    ],
)
def test_a_hostile_statement_is_refused(private_run, tmp_path, change, words):
    content = json.loads((private_run / "clients" / "north" / "statement.json").read_text())
    path = tmp_path / "statement.json"
    path.write_text(json.dumps({**content, **change}))
    with pytest.raises(InputError, match=words):
        load_statement(path)


def test_a_statement_comes_back_with_the_same_lines(private_run):
    folder = private_run / "clients" / "north"
    found = load_statement(folder / "statement.json")
    assert found.text() + "\n" == (folder / "statement.txt").read_text()


def test_a_promise_text_in_a_file_is_not_believed(private_run, tmp_path):
    """The line is made of the numbers; a file cannot claim another one."""
    shutil.copytree(private_run, tmp_path / "run")
    path = tmp_path / "run" / "clients" / "north" / "statement.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "promise": "perfect secrecy"}))
    assert "perfect secrecy" not in page_of(tmp_path / "run")


def test_a_missing_statement_in_a_private_federation_is_refused(private_run, tmp_path):
    shutil.copytree(private_run, tmp_path / "run")
    (tmp_path / "run" / "clients" / "north" / "statement.json").unlink()
    with pytest.raises(InputError, match="promises privacy per element"):
        gather(Sources(run=tmp_path / "run"))


def test_names_from_files_are_text_and_not_markup(tmp_path):
    """A class name is chosen by whoever writes the client files."""
    from secure_fl.heads.fitting import train_heads
    from secure_fl.heads.run_folder import create_run
    from tests.secure_fl.report.conftest import manifest

    facts = manifest(classes=("<script>alert(1)</script>", "b"))
    create_run(tmp_path / "run", train_heads(draw_clients(), facts), facts)
    page = page_of(tmp_path / "run", label_counts=True)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_the_page_is_readable_by_its_owner_only(clear_run, tmp_path):
    path = tmp_path / "page.html"
    size = write_report(path, gather(Sources(run=clear_run)))
    assert path.stat().st_size == size
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_threshold_says_what_is_left_and_how_good_it_is(clear_run, test_file, tmp_path):
    """Counted anew from the encrypted rule's answers in plain arithmetic."""
    run = tmp_path / "run"
    shutil.copytree(clear_run, run)
    facts = set_threshold(load_run(run)[0], 0.2, 0.1)
    save_manifest(run, facts)
    heads = load_run(run)[1]
    with np.load(test_file) as stored:
        X, y = stored["X"], stored["y"]
    codes = all_codes(heads, query_features(X, facts, source="X"), facts)
    found = fhe.plain(codes, rule_parameters(facts, failure_exponent=128, block=1))
    answered = found < 2
    assert 0 < answered.mean() < 1
    text = text_of(page_of(run, test=test_file))
    assert f"below the threshold, the others are unknown {answered.mean():.2%}" in text
    assert f"right of these {np.mean(found[answered] == y[answered]):.2%}" in text


def test_a_run_that_answers_by_masked_sums_has_no_keys_and_says_what_is_shown(tmp_path):
    facts = manifest(rule="masked", bits=5)
    create_run(tmp_path / "run", train_heads(draw_clients(), facts), facts)
    text = text_of(page_of(tmp_path / "run"))
    assert "rule masked contributors 2 left at every step, by default 2 classes 2" in text
    assert "words a query 64 of 64 bits bytes a query and contributor 512" in text
    assert "with probability 2^-64 keys none; nothing opens a contribution" in text
    assert "class and smallest code" in text
    assert "ciphertext" not in text
    with pytest.raises(InputError, match="its rule is masked"):
        gather(Sources(run=tmp_path / "run", keys=tmp_path))


def test_several_queriers_are_named_with_what_binds_them_together(clear_run, tmp_path):
    assert "queriers may ask" not in text_of(page_of(clear_run))
    shutil.copytree(clear_run, tmp_path / "run")
    save_manifest(tmp_path / "run", manifest(queriers=("lab", "clinic")))
    text = text_of(page_of(tmp_path / "run"))
    assert "2 queriers may ask: lab, clinic. Each reads its own answers" in text
