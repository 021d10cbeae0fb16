"""Both pages in a real headless browser: nothing is loaded, nothing fails, nothing runs over."""

import pytest

from benchmarks._harness import Table
from benchmarks._report import write_report as write_bench_report
from benchmarks._results import Result
from secure_fl.report import Sources, gather, write_report
from tests.browser import ABSENT, find_browser, open_browser

pytestmark = pytest.mark.skipif(find_browser() is None, reason=ABSENT)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(find_browser(), tmp_path_factory.mktemp("profile")) as found:
        yield found


def bench_page(path):
    rows = [["1", "70.0", "71.0", "71.5", "248", "3072"], ["no privacy", "79.0", *[None] * 4]]
    columns = ("epsilon per element", "no smoothing", "default smoothing", "oracle", "a", "b")
    title = "test accuracy %, 20 Newsgroups, 100 clients, alpha 0.1, delta 1e-5"
    result = Result(
        benchmark="privacy_utility",
        question="what does it cost?",
        quick=True,
        tables=(Table(title, columns, rows),),
        notes=("a note",),
        parameters={},
        seeds=(0,),
        environment={"versions": {"numpy": "1"}},
        seconds=1.0,
    )
    write_bench_report(path, {"privacy_utility": result}, {"other": "asks"})


@pytest.fixture(scope="module")
def pages(tmp_path_factory, clear_run, private_run, test_file):
    folder = tmp_path_factory.mktemp("pages")
    ledgers = private_run.parent / "ledgers"
    private = Sources(run=private_run, ledgers=ledgers, test=test_file)
    clear = Sources(run=clear_run, test=test_file, label_counts=True)
    write_report(folder / "private.html", gather(private))
    write_report(folder / "clear.html", gather(clear))
    bench_page(folder / "bench.html")
    return folder


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", ["private", "clear", "bench"])
def test_a_page_asks_for_nothing_reports_nothing_and_fits(browser, pages, name, width):
    path = pages / f"{name}.html"
    found = browser.visit(path, width)
    assert found.requests == [path.resolve().as_uri()]
    assert found.messages == []
    assert found.width <= width
    assert len(found.text) > 500


def test_a_request_and_an_error_would_be_seen(browser, tmp_path):
    """The test above can fail: a page that loads, complains and runs over is told."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<img src='http://127.0.0.1:9/x.png'><div style='width:3000px'>wide</div>"
        "<script>console.error('oops'); throw new Error('thrown')</script>"
    )
    found = browser.visit(page, 400)
    assert "http://127.0.0.1:9/x.png" in found.requests
    assert any("oops" in message for message in found.messages)
    assert any("thrown" in message for message in found.messages)
    assert found.width > 400


def test_the_policy_of_a_page_stops_what_should_not_be_in_it(browser, pages, tmp_path):
    text = (pages / "clear.html").read_text()
    page = tmp_path / "injected.html"
    page.write_text(text.replace("</main>", "<script>document.title = 'ran'</script></main>"))
    found = browser.visit(page, 1280)
    assert any("Content Security Policy" in message for message in found.messages)
