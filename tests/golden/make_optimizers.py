"""Makes optimizers/lion.safetensors and optimizers/adamw_8bit.safetensors: weights and optimizer state after fifty steps, computed in fp32 from the
published definitions, and checked against bitsandbytes. For people; no test runs it.

    python make_optimizers.py

Weights and gradients are exact functions of their index (`number`), which tests compute again: only results are stored. Integers are stored
as fp32: they are small enough to be exact.
"""

import pathlib

import bitsandbytes
import bitsandbytes.backends.cpu.ops as processor
import bitsandbytes.functional as quantized
import numpy as np
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 50
BLOCK = 256
SHAPES = {"matrix": (23, 27), "vector": (100,)}  # 8-bit: two blocks and a part of one; too small for codes
MIN_8BIT_SIZE = 256


def number(site, n):
    """n numbers of [-1/2, 1/2), each a multiple of 2^-24."""
    i = np.arange(n, dtype=np.uint64)
    mixed = ((i + np.uint64(1)) * np.uint64(2654435761) + np.uint64(site + 1) * np.uint64(40503 * 65537)) % np.uint64(1 << 32)
    mixed ^= mixed >> np.uint64(15)
    mixed = (mixed * np.uint64(2246822519)) % np.uint64(1 << 32)
    mixed ^= mixed >> np.uint64(13)
    return torch.from_numpy((mixed >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5))


def floats(t):
    return t.to(torch.float32).contiguous()


def weights(name):
    n = int(np.prod(SHAPES[name]))
    return number(1000 if name == "matrix" else 1001, n).reshape(SHAPES[name])


def gradient(name, step):
    """Of very different sizes: element i is scaled by 2^-(i mod 8)."""
    n = int(np.prod(SHAPES[name]))
    scale = torch.from_numpy(np.float32(2.0) ** -(np.arange(n) % 8).astype(np.float32))
    return (number(2 * step + (name == "vector"), n) * scale).reshape(SHAPES[name])


def decay_of(name, weight_decay):
    return weight_decay if name == "matrix" else 0.0


def lion(name, lr, beta1, beta2, weight_decay):
    """google/automl, lion_pytorch.py: decay, sign of the interpolated momentum, then the momentum."""
    w, m = weights(name), torch.zeros(SHAPES[name])
    for step in range(1, STEPS + 1):
        g = gradient(name, step)
        w.mul_(1 - lr * decay_of(name, weight_decay))
        w.add_(torch.sign(m * beta1 + g * (1 - beta1)), alpha=-lr)
        m.mul_(beta2).add_(g, alpha=1 - beta2)
    return dict(weight=w, m=m)


def levels(signed):
    """Dettmers et al. 2022, section 1.3: exponent and linear fraction share seven bits."""
    values = [0.0, 1.0]
    for i in range(7):
        edges = np.linspace(0.1, 1.0, 2 ** (i if signed else i + 1) + 1)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (i - 6)
        values += [*middles, *(-middles if signed else [])]
    return torch.tensor(sorted(values), dtype=torch.float32)


def encoded(x, table):
    """Per block of 256: the largest magnitude, and for each number the index of the nearest of 256 fractions of it."""
    codes, scales = [], []
    for block in x.flatten().split(BLOCK):
        scale = block.abs().max()
        fraction = block / scale if scale > 0 else torch.zeros_like(block)
        codes.append((fraction.double()[:, None] - table.double()[None, :]).abs().argmin(dim=1))
        scales.append(scale)
    return torch.cat(codes), torch.stack(scales)


def decoded(codes, scales, table):
    return torch.cat([table[c] * s for c, s in zip(codes.split(BLOCK), scales)])


def adamw_8bit(name, lr, beta1, beta2, epsilon, weight_decay):
    w = weights(name).flatten()
    n = w.numel()
    coded = n >= MIN_8BIT_SIZE
    tables = levels(True), levels(False)
    m, v = torch.zeros(n), torch.zeros(n)
    for step in range(1, STEPS + 1):
        g = gradient(name, step).flatten()
        m = m * beta1 + g * (1 - beta1)
        v = v * beta2 + g * g * (1 - beta2)
        w.mul_(1 - lr * decay_of(name, weight_decay))
        w.sub_(lr * (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + epsilon))
        if coded:
            (m_code, m_scale), (v_code, v_scale) = encoded(m, tables[0]), encoded(v, tables[1])
            m, v = decoded(m_code, m_scale, tables[0]), decoded(v_code, v_scale, tables[1])
    made = dict(weight=w.reshape(SHAPES[name]))
    return made | (dict(m_code=m_code, v_code=v_code, m_scale=m_scale, v_scale=v_scale) if coded else dict(m=m, v=v))


def encode_as_gpus_do(x, table, scales, codes, blocksize):
    made, largest_of_blocks = encoded(x, table)
    codes.copy_(made.reshape(codes.shape))
    scales.copy_(largest_of_blocks)


def by_bitsandbytes(make, settings):
    """The same steps, on the processor; returns the weights and the states. bitsandbytes' quantization there looks codes up in a table of cells
    that are wider than the distance of small fractions; on GPUs and here it takes the nearest."""
    processor._quant_blockwise_fp32_direct = encode_as_gpus_do
    parameters = {name: torch.nn.Parameter(weights(name).clone()) for name in SHAPES}
    groups = [dict(params=[p], weight_decay=decay_of(name, settings["weight_decay"])) for name, p in parameters.items()]
    optimizer = make(groups, lr=settings["lr"], betas=(settings["beta1"], settings["beta2"]))
    for step in range(1, STEPS + 1):
        for name, p in parameters.items():
            p.grad = gradient(name, step)
        optimizer.step()
    return {name: (p.detach(), optimizer.state[p]) for name, p in parameters.items()}


def largest(a, b):
    return float((a.double() - b.double()).abs().max())


def main():
    folder = HERE / "optimizers"
    folder.mkdir(exist_ok=True)
    notes = [f"bitsandbytes {bitsandbytes.__version__}", f"torch {torch.__version__}"]

    settings = dict(lr=2.0**-9, beta1=0.9, beta2=0.99, weight_decay=0.1)
    tensors = {}
    theirs = by_bitsandbytes(bitsandbytes.optim.Lion, settings)
    for name in SHAPES:
        made = lion(name, **settings)
        tensors |= {f"{name}.{key}": floats(t) for key, t in made.items()}
        notes.append(f"lion {name}: weights of bitsandbytes' Lion differ by up to {largest(made['weight'], theirs[name][0]):.1e}, "
                     f"m by {largest(made['m'], theirs[name][1]['state1']):.1e}")
    save_file(tensors, folder / "lion.safetensors")

    settings = dict(lr=2.0**-7, beta1=0.9, beta2=0.999, weight_decay=0.1)
    tensors = {}
    theirs = by_bitsandbytes(lambda *a, **k: bitsandbytes.optim.AdamW8bit(*a, **k, eps=1e-8, min_8bit_size=MIN_8BIT_SIZE), settings)
    for name in SHAPES:
        made = adamw_8bit(name, **settings, epsilon=1e-8)
        tensors |= {f"{name}.{key}": floats(t) for key, t in made.items()}
        weight, state = theirs[name]
        notes.append(f"adamw_8bit {name}: weights of bitsandbytes' AdamW8bit differ by up to {largest(made['weight'], weight):.1e}"
                     f" (moved by up to {largest(made['weight'], weights(name)):.2f})")
        if "m_code" in made:
            for code, their in (("m_code", "state1"), ("v_code", "state2")):
                by = (made[code].int() - state[their].flatten().int()).abs()
                notes.append(f"adamw_8bit {name}: {int((by > 0).sum())} of {by.numel()} {code} differ, by up to {int(by.max())}")
    for signed, key in ((True, "signed_levels"), (False, "unsigned_levels")):
        theirs = quantized.create_dynamic_map(signed=signed)
        tensors[key] = floats(theirs)
        notes.append(f"{key}: bitsandbytes' differ by up to {float(((levels(signed) - theirs).abs() / theirs.abs().clamp(min=1e-30)).max()):.1e} of them")
    save_file(tensors, folder / "adamw_8bit.safetensors")
    (HERE / "VERSIONS_optimizers").write_text("\n".join(notes) + "\n")


if __name__ == "__main__":
    main()
