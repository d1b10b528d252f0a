"""Makes head_lora/expected.safetensors: logits, loss and gradients of a head with LoRA, as torchtune's apply_lora_to_output makes it. For people; no test
runs it.

    python make_head_lora.py

In fp64; in fp32 the logits are checked here against torchtune's own LoRALinear, bit for bit (see make_qat_lora.py for how it is imported).
"""

import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

import make_qat_lora

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, INPUTS, VOCABULARY, RANK, ALPHA = 7, 8, 13, 2, 3.0


def logits_of(x, w, a, b):
    return x @ w.T + ALPHA / RANK * ((x @ a.T) @ b.T)


def check(x, w, a, b):
    make_qat_lora.torchtune_layer()
    import sys

    module = sys.modules["torchtune.modules.peft.lora"].LoRALinear(INPUTS, VOCABULARY, RANK, ALPHA)
    x, w, a, b = (t.detach().float() for t in (x, w, a, b))
    module.weight.data.copy_(w), module.lora_a.weight.data.copy_(a), module.lora_b.weight.data.copy_(b)
    assert torch.equal(module(x), logits_of(x, w, a, b))


def main():
    rng = np.random.default_rng(55)
    draw = lambda *shape: torch.from_numpy(rng.standard_normal(shape)).requires_grad_()
    x, w, a, b = draw(TOKENS, INPUTS), draw(VOCABULARY, INPUTS), draw(RANK, INPUTS), draw(VOCABULARY, RANK)
    check(x, w, a, b)
    targets = torch.tensor([3, -100, 0, 12, 7, -100, 5])
    logits = logits_of(x, w, a, b)
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    (losses.sum() / 5).backward()
    tensors = {"x": x, "w": w, "a": a, "b": b, "logits": logits, "losses": losses, "dx": x.grad, "dw": w.grad, "da": a.grad, "db": b.grad}
    folder = HERE / "head_lora"
    folder.mkdir(exist_ok=True)
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    main()
