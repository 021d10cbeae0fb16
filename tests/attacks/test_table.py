"""The page of attacks says what the attack files say."""

from tests.attacks.table import FOLDER, PAGE, attacks, page


def test_the_page_is_up_to_date():
    """Otherwise run python -m tests.attacks --write."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_attack_file_says_what_its_attack_is():
    files = {path.stem for path in FOLDER.glob("test_*.py")} - {"test_table"}
    assert set(attacks()) == files
    for attack in attacks().values():
        for text in (attack.name, attack.holds, attack.before, attack.after):
            assert text
            assert "|" not in text
            assert "\n" not in text
