#!/usr/bin/env python3
"""A training step in PyTorch, the same as in xtrain's train_step: forward, backward, gradient clipping, AdamW.

    pytorch_step.py fp32|bf16|fp32_compiled|bf16_compiled [ROWS] [CONTEXT] [STEPS]     GPT-2 124M
    pytorch_step.py llama_lora|llama_lora_compiled        [ROWS] [CONTEXT] [STEPS]     LLaMA 1.1B, its adapters alone

The script restarts itself in the environment in which PyTorch was fastest; README.md in this folder lists what was tried.
PEER_UNTUNED=1 leaves the environment unchanged.
"""
import glob
import os
import subprocess
import sys
import tempfile

# Every step allocates and frees the same hundreds of MiB. By default glibc returns large blocks to the system at
# once, and faulting them in again costs more than any kernel. tcmalloc keeps them, as glibc does with these settings.
PATIENT_GLIBC = {
    "MALLOC_MMAP_THRESHOLD_": "17179869184",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
THREADS = {"OMP_WAIT_POLICY": "active", "OMP_PROC_BIND": "close"}
HARMFUL = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # both make products slower if they do not match the processor


def processor_is(*words):
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read()
    except OSError:
        return False
    return all(word in text for word in words)


def mkl_on_amd():
    """The shared library built from mkl_on_amd.c, or nothing if it does not help or there is no compiler."""
    if not processor_is("AuthenticAMD", "avx512f"):
        return []
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mkl_on_amd.c")
    library = os.path.join(tempfile.gettempdir(), f"mkl_on_amd-{os.getuid()}.so")
    made = subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=False).returncode == 0
    return [library] if made else []


def tuned_environment():
    environment = {name: value for name, value in os.environ.items() if name not in HARMFUL}
    preload = mkl_on_amd()
    if processor_is("avx512f"):
        environment["ATEN_CPU_CAPABILITY"] = "avx512"
    tcmalloc = glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4")
    if tcmalloc:
        preload += tcmalloc[:1]
    else:
        environment |= PATIENT_GLIBC
    if preload:
        environment["LD_PRELOAD"] = ":".join(preload)
    return environment | THREADS | {"PEER_TUNED": "1"}


def start_again_tuned():
    if os.environ.get("PEER_UNTUNED") or os.environ.get("PEER_TUNED"):
        return
    os.execve(sys.executable, [sys.executable, *sys.argv], tuned_environment())


if __name__ == "__main__":
    start_again_tuned()

import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x_btc):
        b, t, c = x_btc.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.c_attn(x_btc).split(c, dim=2))
        y_bhtd = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y_bhtd.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x_btc):
        x_btc = x_btc + self.attn(self.ln_1(x_btc))
        return x_btc + self.c_proj(F.gelu(self.c_fc(self.ln_2(x_btc)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, vocabulary=50257, width=768, layers=12, heads=12, context=1024):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens_bt, targets_bt):
        x_btc = self.wte(tokens_bt) + self.wpe.weight[: tokens_bt.shape[1]]
        for block in self.h:
            x_btc = block(x_btc)
        logits_btv = F.linear(self.ln_f(x_btc), self.wte.weight)
        return F.cross_entropy(logits_btv.flatten(0, 1), targets_bt.flatten())


def llama_with_adapters():
    """TinyLlama 1.1B's sizes with random weights in bf16; adapters on the layers where xtrain's llama has them by default."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                         num_key_value_heads=4, max_position_embeddings=2048, use_cache=False, attn_implementation="sdpa",
                         dtype=torch.bfloat16)
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


def peak_mebibytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def main(mode="fp32", rows="4", context="64", steps="7"):
    rows, context, steps = int(rows), int(context), max(2, int(steps))
    kind, compiled = mode.removesuffix("_compiled"), mode.endswith("_compiled")
    if kind not in ("fp32", "bf16", "llama_lora"):
        sys.exit(f"pytorch_step.py: must be fp32, bf16 or llama_lora, each also with _compiled; given '{mode}'")
    torch.manual_seed(1)
    before = peak_mebibytes()

    vocabulary = 32000 if kind == "llama_lora" else 50257
    model = llama_with_adapters() if kind == "llama_lora" else GPT2()
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    # as xtrain by default: weight decay on matrices, not on norms and biases
    optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.dim() >= 2], "weight_decay": 0.01},
                                   {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}], lr=1e-4, fused=True)

    def loss_of(tokens_bt, targets_bt):
        if kind == "llama_lora":
            # labels are already shifted, so that sequences are as long as xtrain's
            return model(input_ids=tokens_bt, labels=targets_bt, shift_labels=targets_bt).loss
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "bf16"):
            return model(tokens_bt, targets_bt)

    if compiled:
        loss_of = torch.compile(loss_of)

    # the first step compiles, and touches memory for the first time; in the next ones the allocator still adapts its block sizes
    warm_up = 2 if kind == "llama_lora" else 3
    seconds = []
    for _ in range(warm_up + steps):
        tokens = torch.randint(vocabulary, (rows, context + 1))
        begin = time.perf_counter()
        loss = loss_of(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - begin)
        if os.environ.get("PEER_VERBOSE"):
            print(f"loss {loss.item():.4f}   {seconds[-1]:.3f} s", file=sys.stderr)

    seconds = sorted(seconds[warm_up:])
    places, median = rows * context, statistics.median_high(seconds)
    print(f"{'pytorch ' + mode:<27} B{rows} T{context:<5} {places / median:8.1f} tokens/s ({places / seconds[-1]:.1f} to {places / seconds[0]:.1f})"
          f"   taken {peak_mebibytes() - before:7.1f} MiB   in all {peak_mebibytes():7.1f} MiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
