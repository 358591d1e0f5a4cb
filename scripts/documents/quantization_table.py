"""Print the cost of each type: bits per weight, error on normally distributed weights, perplexity.

    python scripts/documents/quantization_table.py --text TEXT --model demo --model stories260K.gguf

The error is the relative root mean square over a million weights of unit variance in rows of 4,096,
without importance. For types that only llama.cpp's quantizer writes it is computed if
llama-cpp-python is installed. Perplexity is that of each --model ("demo": the packaged one),
quantized from the file, in windows of 256 over the text. All matrices have the type; for ternary
types only those of the layers. Rows that do not fit blocks of 32 are F16; models whose rows do not
fit larger blocks have no value.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import trinity
from trinity.cli.loading import model_or_demo
from trinity.errors import TrinityError
from trinity.quantization import MIXES
from trinity_kernels.quantizers import WRITABLE, quantize_rows
from trinity_kernels.quants import TYPES

WINDOW = 256
# Types as files have them, from the most bits to the fewest.
NAMES = (
    "F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_1", "Q5_0", "Q5_K", "Q4_1", "NVFP4", "Q4_0", "IQ4_NL",
    "Q4_K", "MXFP4", "IQ4_XS", "Q3_K", "IQ3_S", "IQ3_XXS", "Q2_K", "IQ2_S", "IQ2_XS", "Q2_0",
    "IQ2_XXS", "TQ2_0", "I2_S", "IQ1_M", "TQ1_0", "IQ1_S", "Q1_0",
)  # fmt: skip


def error_of(name: str, rows: NDArray[np.float32]) -> float | None:
    """Return the relative RMS error of a round trip, or None for a type that nothing can write."""
    quant = TYPES[name]
    if name in WRITABLE:
        data = quantize_rows(name, rows).reshape(-1)
    elif quant.encode_blocks:
        data = quant.quantize(rows)
    else:
        found = by_ggml(name, rows)
        if found is None:
            return None
        data = found
    back = quant.dequantize(data, rows.shape).astype(np.float64)
    return float(np.sqrt(np.square(back - rows).sum() / np.square(rows).sum(dtype=np.float64)))


def by_ggml(name: str, rows: NDArray[np.float32]) -> NDArray[np.uint8] | None:
    """Quantize with ggml, with equal importance of all columns."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.goldens.ggml_blocks import library
    from trinity_kernels.ggml import TYPES_BY_NAME

    try:
        ggml = library()
    except ImportError:
        return None
    quant, kind = TYPES[name], TYPES_BY_NAME[name].id
    data = np.zeros(quant.nbytes(rows.shape), np.uint8)
    importance = np.ones(rows.shape[1], np.float32)
    ggml.ggml_quantize_init(kind)
    ggml.ggml_quantize_chunk(
        kind, rows.ctypes.data, data.ctypes.data, 0, *rows.shape, importance.ctypes.data
    )
    return data


def perplexity_of(model: str, name: str, text: str, folder: Path) -> float | None:
    """Return the perplexity with all matrices in the type, or None if it does not fit."""
    mix = name if name in MIXES else f"{name}_S"
    if mix not in MIXES:
        return None
    ternary = name in ("I2_S", "TQ1_0", "TQ2_0")
    path = folder / f"{Path(model).stem}-{name}.gguf"
    try:
        made = trinity.quantize(
            model, path, mix, pure=not ternary, allow_requantize=True, overwrite=True
        )
        if any("not a multiple" in note for note in made.notes) and TYPES[name].block_size > 32:
            return None
        with trinity.load(path, context_length=WINDOW) as loaded:
            return float(loaded.perplexity(text, window=WINDOW).perplexity)
    except TrinityError as error:
        print(f"{model} as {name}: {error}", file=sys.stderr)
        return None
    finally:
        path.unlink(missing_ok=True)


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0], formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="what to measure perplexity on")
    parser.add_argument("--model", action="append", default=[], help='"demo" or a GGUF file')
    options = parser.parse_args()
    models = [model_or_demo(None if model == "demo" else model) for model in options.model]
    text = options.text.read_text(encoding="utf-8") if options.text else ""
    rows = np.random.default_rng(0).normal(size=(256, 4096)).astype(np.float32)
    names = [Path(model).stem for model in models]
    print("| type | bits per weight | error |" + "".join(f" {name} |" for name in names))
    print("| --- | ---: | ---: |" + " ---: |" * len(models))
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            quant = TYPES[name]
            bits = 8 * quant.type_size / quant.block_size
            error = error_of(name, rows)
            cells = [f"{bits:.4g}", "-" if error is None else f"{error:.2g}"]
            for model in models:
                found = perplexity_of(model, name, text, Path(folder))
                cells.append("-" if found is None else f"{found:.3f}")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
