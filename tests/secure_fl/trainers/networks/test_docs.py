import re
from pathlib import Path


def test_the_block_of_the_docs_runs(capsys):
    text = (Path(__file__).parents[4] / "docs" / "networks.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    exec(compile(block, "docs/networks.md", "exec"), {})
    assert capsys.readouterr().out.split() == ["1", "2", "3", "4", "5"]
