"""Encodes texts with any sentence-transformers model: from a folder, an installed package or the local hub cache.

A model runs on the CPU in float64 and one text at a time, so that batch size and thread count change a score by less than 1e-12.
Weights are read from safetensors alone, code of a model is never run, and the hub is used only where ``SCHEMAROUTER_HUB`` is set.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from schemarouter.canonical import fingerprint
from schemarouter.errors import SchemaRouterError, closest

HUB_VARIABLE = "SCHEMAROUTER_HUB"
DEFAULT = "use-m3"
EXTRA = "pip install 'schemarouter-research[dense]'"
_LIST_OF_MODULES = "modules.json"
_MODEL_FILES = (".json", ".model", ".safetensors", ".txt")
_OTHER_EXPORTS = (
    "*.bin",
    "*.ckpt",
    "*.gguf",
    "*.h5",
    "*.msgpack",
    "*.onnx",
    "*.ot",
    "*.pt",
    "*.pth",
    "onnx/*",
    "openvino/*",
)
_LIBRARIES = ("sentence-transformers", "tokenizers", "torch", "transformers")
_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_TINY = 1e-12


class ModelError(SchemaRouterError):
    """A model that is not found, or that cannot be loaded."""


class Prompts(NamedTuple):
    """The texts that are put before a query and before a passage."""

    query: str = ""
    passage: str = ""


# Prompts by a pattern for the whole of a model's name without its owner; the first that matches. See `prompts_of`.
FAMILIES: tuple[tuple[str, Prompts], ...] = (
    (r"(multilingual-)?e5-.+-instruct", Prompts(f"Instruct: {_TASK}\nQuery: ")),
    (r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?", Prompts("query: ", "passage: ")),
    (r"bge-(small|base|large)-en(-v1\.5)?", Prompts("Represent this sentence for searching relevant passages: ")),
    (r"bge-(small|base|large)-zh(-v1\.5)?", Prompts("为这个句子生成表示以用于检索相关文章：")),
    (r"qwen3-embedding-.+", Prompts(f"Instruct: {_TASK}\nQuery:")),
)


def prompts_of(names: Sequence[str], own: dict[str, str], default: str | None = None) -> Prompts:
    """Return the prompts of a model.

    The prompts of its configuration come first: ``query``, and the first of ``document``, ``passage`` and ``corpus`` (the rule of
    sentence-transformers' `encode_query` and `encode_document`), else its default prompt for both. A model without any has
    those of its family, as the authors' model cards state them: e5 "query: " and "passage: " (hf.co/intfloat/e5-base-v2); e5
    instruct an instruction before queries alone (hf.co/intfloat/multilingual-e5-large-instruct); bge v1 and v1.5 a sentence
    before queries alone (hf.co/BAAI/bge-base-en-v1.5), bge-m3 none (hf.co/BAAI/bge-m3); Qwen3-Embedding an instruction before
    queries alone (hf.co/Qwen/Qwen3-Embedding-0.6B). Any other model has none.

    Args:
        names: What the model is known by.
        own: The prompts of its configuration, by key.
        default: The key of its default prompt.
    """
    declared = {key: text for key, text in own.items() if text}
    passage = next((declared[key] for key in ("document", "passage", "corpus") if key in declared), "")
    if "query" in declared or passage:
        return Prompts(declared.get("query", ""), passage)
    if default in declared:
        return Prompts(declared[default], declared[default])
    for name in names:
        short = name.rstrip("/").rpartition("/")[2]
        for pattern, prompts in FAMILIES:
            if re.fullmatch(pattern, short, re.IGNORECASE):
                return prompts
    return Prompts()


def locate(model: str) -> Path:
    """Find the folder of a model.

    Args:
        model: A path, the name of an installed package that holds a model, or a hub name in the local cache; with
            ``SCHEMAROUTER_HUB`` set, any hub name, which is then fetched.

    Returns:
        The folder.

    Raises:
        ModelError: Where there is none.
    """
    try:
        folder = Path(model).expanduser()
        if folder.is_dir():
            return folder
    except (OSError, RuntimeError, ValueError):
        pass  # Not a path: too long, without a home, with a null character.
    located = _packaged(model) or _cached(model)
    if located is None and os.environ.get(HUB_VARIABLE):
        located = _fetch(model)
    if located is None:
        raise ModelError(
            f"model {model!r} is not a folder, not an installed package that holds a model, and not in the local hub cache."
            f"{closest(model, [DEFAULT])} Give the path of a folder, in double quotes where it has other characters than "
            f"letters, digits and ._/:@+-; or set {HUB_VARIABLE}=1 to let it be fetched from the hub; "
            f"or take model={DEFAULT}."
        )
    return located


def _packaged(model: str) -> Path | None:
    module = model.replace("-", "_")
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    roots = spec.submodule_search_locations if spec else None
    folders = [path.parent for root in roots or () for path in sorted(Path(root).rglob(_LIST_OF_MODULES))]
    return folders[0] if len(folders) == 1 else None


def _cached(model: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    try:
        path = try_to_load_from_cache(model, _LIST_OF_MODULES)
    except (OSError, ValueError):
        return None
    return Path(path).parent if isinstance(path, str) else None


def _fetch(model: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, ignore_patterns=list(_OTHER_EXPORTS)))
    except Exception as error:  # The hub's client raises errors of several libraries.
        raise ModelError(
            f"model {model!r} could not be fetched from the hub: {_first_line(error)} "
            f"Check the name and the network, or give the path of a folder."
        ) from None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."


def _check(model: str, folder: Path) -> None:
    """Raise ModelError unless `folder` holds a sentence-transformers model with its weights in safetensors."""
    if not (folder / _LIST_OF_MODULES).is_file():
        raise ModelError(
            f"model {model!r}: {folder} holds no {_LIST_OF_MODULES}, so how its tokens are pooled is not known; "
            "give the folder of a sentence-transformers model (SentenceTransformer.save_pretrained writes one)."
        )
    for path in sorted(folder.rglob("pytorch_model*.bin")):
        if not any(path.parent.glob("*.safetensors")):
            raise ModelError(
                f"model {model!r}: the weights {path.relative_to(folder)} are a pickle, which is never read; "
                "save the model as safetensors (SentenceTransformer.save_pretrained does)."
            )


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file that decides vectors (weights, configuration, tokenizer), by its path in the folder."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inside.parts)
        if path.suffix in _MODEL_FILES and path.is_file() and not hidden:
            with path.open("rb") as file:
                hashes[inside.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _load(model: str, folder: Path) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer

    try:
        with _no_progress_bar():
            loaded = SentenceTransformer(
                str(folder),
                device="cpu",
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        return loaded.to(torch.float64).eval()
    except Exception as error:  # A broken folder raises errors of any kind.
        raise ModelError(
            f"model {model!r}: {folder} could not be loaded: {_first_line(error)} "
            "Save or fetch the model again; models that need code of their own cannot be used."
        ) from error


class SentenceEncoder:
    """A sentence-transformers model, an `Encoder` with prompts for queries and passages. Raises ModelError as `locate` does."""

    name = "sentence-transformers"

    def __init__(self, model: str) -> None:
        if importlib.util.find_spec("sentence_transformers") is None:
            raise ModelError(
                f"model {model!r} needs sentence-transformers: {EXTRA}, or take model={DEFAULT}.{closest(model, [DEFAULT])}"
            )
        folder = locate(model)
        _check(model, folder)
        self._model = _load(model, folder)
        self.prompts = prompts_of(_names(model, folder), self._model.prompts, self._model.default_prompt_name)
        self.limit: int | None = self._model.max_seq_length
        self.dimensions: int = self._model.get_embedding_dimension() or self._vector("", "").size
        self._identity = fingerprint(
            {
                "files": _hashes(folder),
                "prompts": list(self.prompts),
                "limit": self.limit,
                "libraries": {library: version(library) for library in _LIBRARIES},
            }
        )

    @property
    def identity(self) -> str:
        """A hash of the model's files, its prompts and limit, and the versions of the libraries that run it."""
        return self._identity

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit vectors of passages, shape (len(texts), dimensions), float64."""
        return self._encode(texts, self.prompts.passage)

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit vectors of queries, shape (len(texts), dimensions), float64."""
        return self._encode(texts, self.prompts.query)

    def cut(self, text: str, *, query: bool) -> int:
        """How many tokens of a query or a passage, with its prompt, are beyond the limit and not read."""
        length = self._length(text, self.prompts.query if query else self.prompts.passage)
        return max(0, length - self.limit) if self.limit is not None else 0

    def _length(self, text: str, prompt: str) -> int:
        tokenizer = self._model.tokenizer
        if not callable(tokenizer):
            return len(tokenizer.encode(prompt + _clean(text)).ids)
        return len(tokenizer(prompt + _clean(text), truncation=False, verbose=False)["input_ids"])

    def _encode(self, texts: Sequence[str], prompt: str) -> NDArray[np.float64]:
        return np.stack([self._vector(text, prompt) for text in texts]) if texts else np.zeros((0, self.dimensions))

    def _vector(self, text: str, prompt: str) -> NDArray[np.float64]:
        encoded = self._model.encode([_clean(text)], prompt=prompt, batch_size=1, show_progress_bar=False)
        vector = np.asarray(encoded[0], dtype=np.float64)
        return np.asarray(vector / max(float(np.sqrt(np.sum(vector * vector))), _TINY))


def _clean(text: str) -> str:
    """The text without lone surrogates, which no tokenizer accepts."""
    return text.encode("utf-8", "replace").decode()


def _names(model: str, folder: Path) -> list[str]:
    """Names of a model: as it was asked for, its folder's, and the one in its configuration."""
    try:
        config = orjson.loads((folder / "config.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        config = {}
    own = config.get("_name_or_path") if isinstance(config, dict) else None
    return [model, folder.resolve().name, own if isinstance(own, str) else ""]
