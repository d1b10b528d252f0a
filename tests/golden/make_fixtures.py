"""Makes the fixtures that parity tests compare with: small models, what PyTorch and transformers compute with them.

Run by hand when a fixture must change; the tests read what is committed here. Versions and hashes go to VERSIONS and
SHA256SUMS. Numbers are drawn from NumPy's PCG64, so a run with the same versions gives the same files.

    python make_fixtures.py
"""

import hashlib
import json
import math
import pathlib
import shutil

import numpy as np
import peft
import safetensors
import tokenizers
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS = [1, 7, 33]  # sequence lengths; the last is one more than a block of anything
STEPS = 50
ADAMW = dict(lr=2e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def tokens(rng, shape, vocabulary):
    return torch.from_numpy(rng.integers(0, vocabulary, shape).astype(np.int64))


def fill(model, rng):
    """Values that are unlike initial ones: norms are not 1, biases are not 0, attention is not flat."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = 0.2 if p.dim() > 1 else 0.1
            values = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32)) * scale
            is_norm_weight = p.dim() == 1 and name.endswith("weight")
            p.copy_(values + 1.0 if is_norm_weight else values)


def loss_of(model, inputs, targets):
    logits = model(input_ids=inputs).logits
    return logits, torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)


def with_gaps(rng, targets):
    """Every fifth place has nothing to predict."""
    mask = torch.from_numpy(rng.random(tuple(targets.shape)) < 0.2)
    mask.view(-1)[0] = False  # at least one is left
    return targets.masked_fill(mask, -100)


def as_floats(t):
    return t.detach().to(torch.float32).contiguous()


def adamw(model):
    """Weight decay on matrices only, as xtrain does it."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [
        dict(params=[p for _, p in named if p.dim() > 1], weight_decay=ADAMW["weight_decay"]),
        dict(params=[p for _, p in named if p.dim() <= 1], weight_decay=0.0),
    ]
    return torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=ADAMW["betas"], eps=ADAMW["eps"])


def make(name, model, seed):
    rng = np.random.default_rng(seed)
    model = model.to(torch.float32).train()
    fill(model, rng)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    vocabulary = model.config.vocab_size
    out = {}
    for t in LENGTHS:
        inputs = tokens(rng, (2, t), vocabulary)
        targets = with_gaps(rng, tokens(rng, (2, t), vocabulary))
        model.zero_grad()
        logits, loss = loss_of(model, inputs, targets)
        loss.backward()
        out[f"t{t}.inputs"] = as_floats(inputs)
        out[f"t{t}.targets"] = as_floats(targets)
        out[f"t{t}.logits"] = as_floats(logits)
        out[f"t{t}.loss"] = as_floats(loss).reshape(1)
        if t != LENGTHS[0]:
            for parameter, p in model.named_parameters():
                out[f"t{t}.grad.{parameter}"] = as_floats(p.grad)
    # fifty steps on rows that change
    t = 16
    inputs = tokens(rng, (STEPS, 4, t), vocabulary)
    targets = with_gaps(rng, tokens(rng, (STEPS, 4, t), vocabulary))
    optimizer = adamw(model)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        _, loss = loss_of(model, inputs[step], targets[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert all(math.isfinite(x) for x in losses)
    out["steps.inputs"] = as_floats(inputs)
    out["steps.targets"] = as_floats(targets)
    out["steps.losses"] = torch.tensor(losses, dtype=torch.float32)
    save_file(out, folder / "expected.safetensors")
    return model


def make_adapter(name, base, targets, seed):
    """A LoRA adapter made by peft, and the logits of the base model with it."""
    rng = np.random.default_rng(seed)
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / base, torch_dtype=torch.float32)
    config = peft.LoraConfig(r=3, lora_alpha=12, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM",
                             fan_in_fan_out=base == "gpt2")
    model = peft.get_peft_model(model, config)
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora_" in n:
                p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32)) * 0.3)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    text = (folder / "adapter_config.json").read_text()
    (folder / "adapter_config.json").write_text(text.replace(str(HERE / base), base))  # no paths of a machine
    inputs = tokens(rng, (2, 9), model.config.vocab_size)
    with torch.no_grad():
        logits = model(input_ids=inputs).logits
    save_file({"inputs": as_floats(inputs), "logits": as_floats(logits)}, folder / "expected.safetensors")


def main():
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    make("gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=61, n_positions=37, n_embd=24, n_layer=2, n_head=3, n_inner=40, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
        bos_token_id=1, eos_token_id=2)), 1)
    make("llama_grouped_untied", transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=67, max_position_embeddings=40, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)), 2)
    make("llama_tied", transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=53, max_position_embeddings=40, hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=500.0, tie_word_embeddings=True, bos_token_id=1, eos_token_id=[2, 3])), 3)
    make_adapter("gpt2_lora", "gpt2", ["c_attn", "c_fc"], 4)
    make_adapter("llama_lora", "llama_grouped_untied", ["q_proj", "v_proj", "down_proj"], 5)

    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft, tokenizers, safetensors, np)}
    (HERE / "VERSIONS").write_text("".join(f"{k} {v}\n" for k, v in versions.items()))
    files = sorted(p for p in HERE.rglob("*") if p.is_file() and p.parent != HERE)
    (HERE / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(HERE)}\n" for p in files))
    print(json.dumps(versions), sum(p.stat().st_size for p in files), "bytes")


if __name__ == "__main__":
    main()
