"""What every fixture shares: how weights and sequences are drawn, what is computed with them, which files a folder holds.

Numbers are drawn from NumPy's PCG64 in an order that must not change, or committed fixtures change with it.
"""

import json
import math
import pathlib
import shutil

import numpy as np
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS = [1, 7, 33]  # sequence lengths; the last is one more than a block of anything
STEPS = 50
ADAMW = dict(lr=2e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def tokens(rng, shape, vocabulary):
    return torch.from_numpy(rng.integers(0, vocabulary, shape).astype(np.int64))


def with_gaps(rng, targets):
    """Every fifth token has no label."""
    mask = torch.from_numpy(rng.random(tuple(targets.shape)) < 0.2)
    mask.view(-1)[0] = False  # at least one is left
    return targets.masked_fill(mask, -100)


def plain_rows(rng, shape, vocabulary):
    """Tokens, and what follows each: targets are not shifted again by anyone."""
    inputs = tokens(rng, shape, vocabulary)
    return dict(inputs=inputs, targets=with_gaps(rng, tokens(rng, shape, vocabulary)))


def fill(model, rng):
    """Values that are unlike initial ones: norms are not 1, biases are not 0, attention is not flat."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = 0.2 if p.dim() > 1 else 0.1
            values = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32)) * scale
            is_norm_weight = p.dim() == 1 and name.endswith("weight")
            p.copy_(values + 1.0 if is_norm_weight else values)


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)


def causal(model, rows):
    logits = model(input_ids=rows["inputs"]).logits
    return dict(logits=logits, loss=cross_entropy(logits, rows["targets"]))


def gradients_by_parameter(model):
    return {name: p.grad for name, p in model.named_parameters()}


def as_floats(t):
    t = t.detach().to(torch.float32).contiguous()
    return t.reshape(1) if t.dim() == 0 else t


def adamw(model):
    """Weight decay on matrices only, as xtrain does it."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [
        dict(params=[p for _, p in named if p.dim() > 1], weight_decay=ADAMW["weight_decay"]),
        dict(params=[p for _, p in named if p.dim() <= 1], weight_decay=0.0),
    ]
    return torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=ADAMW["betas"], eps=ADAMW["eps"])


def losses_of_steps(model, rows, compute):
    """Fifty steps, each on its own sequences."""
    optimizer = adamw(model)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = compute(model, {key: values[step] for key, values in rows.items()})["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert all(math.isfinite(x) for x in losses)
    return torch.tensor(losses, dtype=torch.float32)


def emptied(name):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def write_config(folder, config):
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def make(name, model, seed, *, vocabulary=None, config=None, draw=plain_rows, compute=causal, gradients=gradients_by_parameter,
         lengths=LENGTHS):
    """Writes the folder of a model.

    draw       makes the tensors of a micro-batch by name, compute what a model says of them: logits, loss and what else it has
    gradients  by the names that model.safetensors has
    config     replaces what transformers would write, where published folders have other keys
    """
    rng = np.random.default_rng(seed)
    model = model.to(torch.float32).train()
    fill(model, rng)
    folder = emptied(name)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if config is not None:
        write_config(folder, config)
    vocabulary = vocabulary or model.config.vocab_size
    out = {}
    for t in lengths:
        rows = draw(rng, (2, t), vocabulary)
        model.zero_grad()
        results = compute(model, rows)
        results["loss"].backward()
        out |= {f"t{t}.{key}": as_floats(values) for key, values in (rows | results).items()}
        if t != 1:
            out |= {f"t{t}.grad.{parameter}": as_floats(g) for parameter, g in gradients(model).items()}
    rows = draw(rng, (STEPS, 4, 16), vocabulary)
    out |= {f"steps.{key}": as_floats(values) for key, values in rows.items()}
    out["steps.losses"] = losses_of_steps(model, rows, compute)
    save_file(out, folder / "expected.safetensors")
    return folder


def causal_model(base):
    return transformers.AutoModelForCausalLM.from_pretrained(HERE / base, torch_dtype=torch.float32)


def random_inputs(rng, model):
    return dict(inputs=tokens(rng, (2, 9), model.config.vocab_size))


def logits_of(model, rows):
    return model(input_ids=rows["inputs"]).logits


def make_adapter(name, base, targets, seed, *, model=None, draw=random_inputs, ask=logits_of, **settings):
    """A LoRA adapter of rank 3 made by peft, and the logits of the base model with it.

    model  with the weights of the folder `base`; without it transformers loads the folder
    draw   makes the rows that are asked, ask what the model says of them: logits, or several results by name
    """
    rng = np.random.default_rng(seed)
    base_model = causal_model(base) if model is None else model
    settings = dict(r=3, lora_alpha=12, lora_dropout=0.0, task_type="CAUSAL_LM") | settings
    model = peft.get_peft_model(base_model, peft.LoraConfig(target_modules=targets, **settings))
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora_" in n or "modules_to_save" in n:
                values = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32)) * 0.3
                p.copy_(values.abs() + 0.5 if "magnitude" in n else values)  # a magnitude is a norm: positive
    folder = emptied(name)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    saved = json.loads((folder / "adapter_config.json").read_text())
    # no paths of a machine, no order of a set
    saved |= dict(base_model_name_or_path=base, target_modules=targets or sorted(saved["target_modules"]))
    saved["modules_to_save"] = saved["modules_to_save"] and sorted(saved["modules_to_save"])
    (folder / "adapter_config.json").write_text(json.dumps(saved, indent=2, sort_keys=True))
    rows = draw(rng, base_model)
    model.eval()
    with torch.no_grad():
        results = ask(model, rows)
    results = results if isinstance(results, dict) else dict(logits=results)
    save_file({key: as_floats(values) for key, values in (rows | results).items()}, folder / "expected.safetensors")


def make_prefix(name, base, seed):
    """A prefix of 4 virtual tokens made by peft, and the logits of the base model with it."""
    rng = np.random.default_rng(seed)
    model = peft.get_peft_model(causal_model(base), peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    with torch.no_grad():
        values = model.prompt_encoder["default"].embedding.weight
        values.copy_(torch.from_numpy(rng.standard_normal(tuple(values.shape)).astype(np.float32)))
    folder = emptied(name)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    saved = json.loads((folder / "adapter_config.json").read_text()) | dict(base_model_name_or_path=base)
    (folder / "adapter_config.json").write_text(json.dumps(saved, indent=2, sort_keys=True))
    inputs = tokens(rng, (2, 9), model.config.vocab_size)
    with torch.no_grad():
        logits = model(input_ids=inputs).logits
    save_file({"inputs": as_floats(inputs), "logits": as_floats(logits)}, folder / "expected.safetensors")
