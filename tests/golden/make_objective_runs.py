"""Makes objectives/runs/*.safetensors and objectives/teacher: fifty steps of training objectives by PyTorch, trl and torchtune. For people; no
test runs it.

    python make_objective_runs.py

Every run trains llama_grouped_untied with the AdamW of fixture.py, in fp32, on five micro-batches in turn. A micro-batch has two pairs of a
chosen and a rejected sequence: a prompt, which both share and which has no targets, an answer, and padding. In the last micro-batch the second
pair is only padding.
"""

import functools
import importlib.metadata
import math

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

from fixture import HERE, STEPS, adamw, as_floats, emptied, fill
from make_objectives import IGNORED, torchtune_loss, trl_kto, trl_loss, trl_orpo, trl_reward, trl_simpo

BASE = "llama_grouped_untied"
BATCHES, PAIRS, LENGTH, TOP = 5, 2, 12, 8
BETA, SMOOTHING, Z_LOSS, TEMPERATURE = 0.1, 0.1, 1e-2, 2.0
GRADIENTS = ("lm_head.weight", "model.norm.weight", "model.layers.0.self_attn.v_proj.weight", "model.layers.0.input_layernorm.weight")
FINALS = ("model.norm.weight", "model.layers.0.self_attn.v_proj.weight")


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def load_reward_model(folder):
    """Without a head's weight in the folder, transformers would draw one."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        model.score.weight.copy_(torch.from_numpy(np.random.default_rng(48).standard_normal(tuple(model.score.weight.shape)) * 0.3))
    return model


def draw_batches(rng, vocabulary):
    """Targets are at the position that predicts them; `lengths` has the number of inputs of each sequence, the rest is padding."""
    shape = (BATCHES, 2 * PAIRS, LENGTH)
    inputs, targets = np.zeros(shape, np.int64), np.full(shape, IGNORED)
    lengths = np.zeros(shape[:2], np.int64)
    for batch in range(BATCHES):
        for pair in range(PAIRS):
            if (batch, pair) == (BATCHES - 1, PAIRS - 1):
                continue
            prompt = rng.integers(0, vocabulary, rng.integers(2, 6))
            for sequence in (2 * pair, 2 * pair + 1):
                answer = rng.integers(0, vocabulary, rng.integers(2, LENGTH + 2 - len(prompt)))
                sample = np.concatenate([prompt, answer])
                n = len(sample) - 1
                inputs[batch, sequence, :n] = sample[:-1]
                targets[batch, sequence, len(prompt) - 1:n] = answer
                lengths[batch, sequence] = n
    weights = rng.uniform(0, 2, shape).astype(np.float32)
    weights[rng.random(shape) < 0.1] = 0
    labels = rng.integers(0, 2, shape[:2])
    return {k: torch.from_numpy(v) for k, v in dict(inputs=inputs, targets=targets, lengths=lengths, token_weights=weights, labels=labels).items()}


def logits_of(model, batch):
    is_token = torch.arange(LENGTH) < batch["lengths"].clamp(min=1)[:, None]  # a sequence of padding keeps one: no softmax over nothing
    return model(input_ids=batch["inputs"], attention_mask=is_token.long()).logits


def scores_of(model, batch):
    """Of the last token of each sequence; 0 without one."""
    scores = [model(input_ids=ids[:n][None]).logits.reshape(()) if n > 0 else torch.zeros((), dtype=model.dtype)
              for ids, n in zip(batch["inputs"], batch["lengths"])]
    return torch.stack(scores)


def log_probs_of(logits, targets):
    return -F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none").reshape(targets.shape)


def mean_over_targets(values, batch):
    return values[batch["targets"] != IGNORED].mean()


# --- objectives: the loss of a batch, from the model's logits


def trl(loss_type):
    return lambda log_probs, counted, reference: trl_loss(log_probs, counted, reference, loss_type, BETA)


def torchtune(log_probs, counted, reference):
    return torchtune_loss(log_probs, counted, reference, BETA, SMOOTHING)


def preference(loss_of_pair, logits, batch):
    """The mean over pairs; one of padding is none."""
    log_probs, counted = log_probs_of(logits, batch["targets"]), batch["targets"] != IGNORED
    losses = []
    for pair in range(PAIRS):
        rows = slice(2 * pair, 2 * pair + 2)
        if counted[rows].any():
            losses.append(loss_of_pair(log_probs[rows], counted[rows], batch["reference"][rows])[0])
    return sum(losses) / len(losses)


def orpo(log_probs, counted, reference):
    return trl_orpo(log_probs, counted, reference, BETA)


def simpo(log_probs, counted, reference):
    return trl_simpo(log_probs, counted, reference, 2.0, 0.5, 0.3)


def kto(logits, batch, **settings):
    """The mean over answers; one of padding is none."""
    log_probs, counted = log_probs_of(logits, batch["targets"]), batch["targets"] != IGNORED
    is_answer = counted[0::2].any(1)
    rows = is_answer.repeat_interleave(2)
    return trl_kto(log_probs[rows], counted[rows], batch["reference"][rows], batch["labels"][0::2][is_answer].bool(), beta=BETA, **settings)[0]


def reward(scores, batch):
    """The mean over pairs; one of padding is none."""
    losses = [trl_reward(*scores[i:i + 2], center=0.02, margin=0.3)[0] for i in range(0, 2 * PAIRS, 2) if batch["lengths"][i] > 0]
    return sum(losses) / len(losses)


def cross_entropy(logits, batch, smoothing=0.0, z_loss=0.0):
    loss = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), ignore_index=IGNORED, label_smoothing=smoothing)
    return loss + z_loss * mean_over_targets(logits.logsumexp(-1) ** 2, batch)


def weighted_cross_entropy(logits, batch):
    weights = batch["token_weights"] * (batch["targets"] != IGNORED)
    return -(weights * log_probs_of(logits, batch["targets"])).sum() / weights.sum()


def divergence(logits, batch, temperature=1.0, reverse=False):
    log_q, log_p = F.log_softmax(logits / temperature, -1), F.log_softmax(batch["teacher"] / temperature, -1)
    of, at = (log_p, log_q) if reverse else (log_q, log_p)
    return mean_over_targets(F.kl_div(of, at, log_target=True, reduction="none").sum(-1), batch)


def mixed(logits, batch):
    return 0.5 * cross_entropy(logits, batch) + 0.5 * TEMPERATURE**2 * divergence(logits, batch, TEMPERATURE)


def topk_divergence(logits, batch):
    log_q = F.log_softmax(logits, -1).gather(-1, batch["topk_ids"])
    return mean_over_targets(F.kl_div(log_q, batch["topk_log_probs"], log_target=True, reduction="none").sum(-1), batch)


CASES = {  # name: the loss, and what its file has beside inputs, targets and lengths
    "dpo": (functools.partial(preference, trl("sigmoid")), ["reference"]),
    "dpo_ipo": (functools.partial(preference, trl("ipo")), ["reference"]),
    "dpo_smoothed": (functools.partial(preference, torchtune), ["reference"]),
    "dpo_reference_free": (lambda logits, batch: preference(trl("sigmoid"), logits, batch | dict(reference=torch.zeros(2 * PAIRS))), []),
    "orpo": (functools.partial(preference, orpo), []),
    "simpo": (functools.partial(preference, simpo), []),
    "kto": (functools.partial(kto, loss_type="kto", undesirable_weight=0.8), ["reference", "labels"]),
    "kto_apo_zero": (functools.partial(kto, loss_type="apo_zero_unpaired"), ["reference", "labels"]),
    "reward": (reward, []),
    "next_token_smoothed": (functools.partial(cross_entropy, smoothing=SMOOTHING), []),
    "next_token_z": (functools.partial(cross_entropy, z_loss=Z_LOSS), []),
    "next_token_weights": (weighted_cross_entropy, ["token_weights"]),
    "distil_forward": (divergence, []),
    "distil_reverse": (functools.partial(divergence, reverse=True), []),
    "distil_mixed": (mixed, []),
    "distil_topk": (topk_divergence, ["topk_ids", "topk_log_probs"]),
}


def run(batches, loss_of, dtype=torch.float32):
    is_reward = loss_of is reward
    model = (load_reward_model if is_reward else load)(HERE / BASE).to(dtype).train()
    outputs_of = scores_of if is_reward else logits_of
    gradients = ("score.weight" if is_reward else GRADIENTS[0], *GRADIENTS[1:])
    first = dict(score=model.score.weight.detach().clone(), scores=scores_of(model, {k: v[0] for k, v in batches.items()}).detach()) if is_reward else {}
    optimizer = adamw(model)
    losses, out = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        batch = {name: values[step % BATCHES] for name, values in batches.items()}
        loss = loss_of(outputs_of(model, batch), batch)
        loss.backward()
        parameters = dict(model.named_parameters())
        if step == 0:
            out |= {f"grad.{name}": parameters[name].grad.clone() for name in gradients}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert all(math.isfinite(x) for x in losses)
    return dict(losses=torch.tensor(losses)) | first | out | {f"final.{name}": parameters[name].detach() for name in FINALS}


def make_teacher():
    config = transformers.LlamaConfig.from_pretrained(HERE / BASE)
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).to(torch.float32)
    fill(model, np.random.default_rng(45))
    folder = emptied("objectives/teacher")
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return load(folder)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    batches = draw_batches(np.random.default_rng(44), load(HERE / BASE).config.vocab_size)
    per_batch = [{name: values[i] for name, values in batches.items()} for i in range(BATCHES)]
    teacher, initial = make_teacher(), load(HERE / BASE)
    with torch.no_grad():
        batches["teacher"] = torch.stack([logits_of(teacher, batch) for batch in per_batch])
        batches["reference"] = torch.stack([log_probs_of(logits_of(initial, batch), batch["targets"]).sum(1) for batch in per_batch])
        batches["topk_log_probs"], batches["topk_ids"] = F.log_softmax(batches["teacher"], -1).topk(TOP)
    folder = emptied("objectives/runs")
    folder.mkdir()
    for name, (loss_of, inputs) in CASES.items():
        results = run(batches, loss_of)
        exact = run({n: v.double() if v.is_floating_point() else v for n, v in batches.items()}, loss_of, torch.float64)
        print(name, *(f"{results['losses'][i].item():.4f}" for i in (0, 10, STEPS - 1)), "from fp64:",
              *(f"{key} {(results[key] - exact[key]).abs().max().item():.1e}" for key in results))
        stored = {key: batches[key] for key in ("inputs", "targets", "lengths", *inputs)}
        save_file({key: as_floats(values) for key, values in (stored | results).items()}, folder / f"{name}.safetensors")
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "trl", "torchtune", "safetensors", "numpy")}
    (HERE / "VERSIONS_objective_runs").write_text("".join(f"{name} {version}\n" for name, version in versions.items()))


if __name__ == "__main__":
    main()
