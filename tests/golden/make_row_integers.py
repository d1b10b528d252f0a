"""Makes row_integers/expected.safetensors: what ChatGLM-6B's quantization.py makes of matrices in 4 and 8 bits. For people; no test runs it.

    python make_row_integers.py

QuantizedLinear and extract_weight_to_half of that file, with PyTorch's arithmetic of fp16. Integers are stored as fp32: they are small enough to be exact.
"""

import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent


def main():
    rng = np.random.default_rng(61)
    tensors = {}
    for columns in (33, 64):
        w = torch.from_numpy((rng.standard_normal((9, columns)) * rng.uniform(0.01, 0.3, (9, 1))).astype(np.float32)).half()
        w[4] = 0
        w[5] *= 1e-2
        w[6] *= 2e4
        w[7, 3] = 2 * w[7].abs().max()
        tensors[f"{columns}.w"] = w.float()
        for bits in (4, 8):
            scale = (w.abs().max(dim=-1).values / ((2 ** (bits - 1)) - 1)).half()
            integers = torch.round(w / scale[:, None]).nan_to_num(0).to(torch.int8)
            name = f"{columns}.{bits}"
            tensors |= {f"{name}.integers": integers.float(), f"{name}.scale": scale.float(), f"{name}.made": (integers.half() * scale[:, None]).float()}
    folder = HERE / "row_integers"
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "expected.safetensors")
    (HERE / "VERSIONS_row_integers").write_text(f"torch {torch.__version__}\n")


if __name__ == "__main__":
    main()
