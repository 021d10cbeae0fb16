"""The querier as one object, against an evaluator and contributors in processes of their own."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.demo.service_parties import PASSPHRASE, copy_parties, deployment
from secure_fl.errors import InputError
from secure_fl.service.asking import QueryClient

PAGE = Path(__file__).resolve().parents[3] / "docs" / "library.md"


def script():
    """The fifth of the library's page."""
    section = PAGE.read_text(encoding="utf-8").partition("## 5.")[2]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return block


def test_the_script_of_the_library_page_gets_the_clear_rules_classes(
    made, tmp_path, monkeypatch, capsys
):
    block = script()
    assert len(block.strip().splitlines()) <= 8
    copy_parties(made.folder, tmp_path / "parties")
    with deployment(tmp_path / "parties") as running:
        running.start("evaluator")
        running.start_contributors(made.manifest.clients)
        monkeypatch.chdir(tmp_path / "parties")
        monkeypatch.setenv("SECUREFL_PASSPHRASE", PASSPHRASE)
        np.save("queries.npy", made.queries[:3])
        exec(compile(block.replace("http://127.0.0.1:8000", running.url()), "<page>", "exec"), {})
    expected = [made.manifest.classes[code] for code in made.clear(slice(0, 3))]
    assert capsys.readouterr().out.strip() == str(np.array(expected))


def test_a_client_without_a_passphrase_says_where_it_looked(made, monkeypatch):
    monkeypatch.delenv("SECUREFL_PASSPHRASE", raising=False)
    with pytest.raises(InputError, match="SECUREFL_PASSPHRASE"):
        QueryClient(made.folder / "querier", "http://127.0.0.1:1", insecure=True)
