"""Makes nf4/expected.safetensors: what bitsandbytes makes of matrices in four bits with scales in eight. For people; no test runs it.

    python make_nf4.py

Numbers are drawn from NumPy's PCG64. Integers are stored as fp32: they are small enough to be exact.
"""

import bitsandbytes
import bitsandbytes.functional as quantized
import numpy as np
import torch
from safetensors.torch import save_file

from fixture import HERE, as_floats

# blocks of 64 and 256 of these: part of one; more than one, the last not full; exactly full ones
SIZES = {"short": 37, "odd": 129 * 133, "even": 64 * 256}


def main():
    rng = np.random.default_rng(29)
    tensors = {}
    for name, n in SIZES.items():
        x = torch.from_numpy(rng.standard_normal(n).astype(np.float32)) * torch.from_numpy(rng.uniform(0.01, 2.0, n).astype(np.float32))
        x[: n // 8] *= 1e-3  # blocks of very different scales
        codes, state = quantized.quantize_4bit(x, blocksize=64, compress_statistics=True, quant_type="nf4")
        tensors |= {f"{name}.x": x, f"{name}.codes": codes.flatten(), f"{name}.scales": state.absmax,
                    f"{name}.outer_scales": torch.cat([state.offset.reshape(1), state.state2.absmax.flatten()]),
                    f"{name}.made": quantized.dequantize_4bit(codes, state).flatten()}
    tensors |= {"shares": state.code, "scale_shares": state.state2.code}
    folder = HERE / "nf4"
    folder.mkdir(exist_ok=True)
    save_file({name: as_floats(t) for name, t in tensors.items()}, folder / "expected.safetensors")
    (HERE / "VERSIONS_nf4").write_text(f"bitsandbytes {bitsandbytes.__version__}\ntorch {torch.__version__}\n")


if __name__ == "__main__":
    main()
