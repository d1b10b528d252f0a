"""Makes objectives/grpo.safetensors and objectives/grpo_runs/*.safetensors: losses, gradients and training runs of GRPO by trl. For people; no test
runs it.

    python make_grpo.py

Losses come from the code of trl's GRPOTrainer, called with log-probabilities instead of a model. Runs are those of make_objective_runs.py, with an
advantage per sequence: the model's old log-probabilities are those of the initial model and noise, so that ratios are clipped; the reference model is
the initial model. A sequence of padding is none.
"""

import functools
import importlib.metadata
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from trl import GRPOTrainer

from fixture import HERE, STEPS, as_floats, emptied
from make_objective_runs import BASE, BATCHES, PAIRS, draw_batches, load, log_probs_of, logits_of, run
from make_objectives import IGNORED, as_doubles, drawn, gradients, head

VARIANTS = {  # settings of trl; old, reference: whether there are such log-probabilities
    "grpo": dict(loss_type="grpo", beta=0.3, old=True),
    "dapo": dict(loss_type="dapo", beta=0.3, old=True, epsilon_high=0.28),
    "dr_grpo": dict(loss_type="dr_grpo", beta=0.0, old=True),
    "on_policy": dict(loss_type="dapo", beta=0.0, old=False),
    "sequence_ratio": dict(loss_type="grpo", beta=0.3, old=True, level="sequence"),
}
MAX_COMPLETION_LENGTH = 10


def trl_grpo(log_probs, counted, advantages, old_log_probs, reference, loss_type, beta, old, epsilon_high=0.2, level="token"):
    """Loss and metrics of the sequences by trl; those without targets are left out."""
    rows = counted.any(1)
    log_probs, counted, advantages = log_probs[rows], counted[rows], advantages[rows]
    metrics = {"train": defaultdict(list)}
    accelerator = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, gather_for_metrics=lambda x: x)
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True), accelerator=accelerator, aux_loss_enabled=False, top_entropy_quantile=1.0, beta=beta,
        off_policy_mask_threshold=None, importance_sampling_level=level, loss_type=loss_type, epsilon_low=0.2, epsilon_high=epsilon_high,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1), use_vllm=False,
        current_gradient_accumulation_steps=1, max_completion_length=MAX_COMPLETION_LENGTH, _entropy_bonus_enabled=False, _metrics=metrics,
        _get_per_token_logps_and_entropies=lambda *_, **__: (log_probs, torch.zeros_like(log_probs), None))
    mask = counted.long()
    inputs = dict(prompt_ids=mask[:, :0], prompt_mask=mask[:, :0], completion_ids=mask, completion_mask=mask, advantages=advantages,
                  old_per_token_logps=old_log_probs[rows] if old else None, ref_per_token_logps=reference[rows], num_items_in_batch=mask.sum())
    loss = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    names = (["kl"] if beta else []) + ["clip_ratio/low_mean", "clip_ratio/high_mean"]
    return loss, torch.tensor([0.0] * (3 - len(names)) + [metrics["train"][name][0] for name in names], dtype=torch.float64)


def make_losses():
    rng = np.random.default_rng(47)
    b, t, c, v = 5, 7, 5, 11
    x, weight = head(rng, b * t, c, v)
    targets = torch.from_numpy(rng.integers(0, v, (b, t)))
    for sequence, (prompt, end) in enumerate(((3, 7), (3, 5), (7, 7), (1, 2), (2, 6))):
        targets[sequence, :prompt] = IGNORED
        targets[sequence, end:] = IGNORED
    counted = targets != IGNORED
    advantages = torch.tensor([1.3, -0.7, 2.0, 0.4, -1.1], dtype=torch.float64)
    log_probs = -F.cross_entropy(x @ weight.T, targets.flatten(), ignore_index=IGNORED, reduction="none").reshape(b, t)
    old, reference = (log_probs.detach() + drawn(rng, b, t, scale=0.3) for _ in range(2))
    out = dict(x=x, weight=weight, targets=targets, advantages=advantages, old=old, reference=reference)
    for name, settings in VARIANTS.items():
        log_probs = -F.cross_entropy(x @ weight.T, targets.flatten(), ignore_index=IGNORED, reduction="none").reshape(b, t)
        loss, statistics = trl_grpo(log_probs, counted, advantages, old, reference, **settings)
        out |= {f"{name}.loss": loss, f"{name}.statistics": statistics} | gradients(name, loss, dict(x=x, weight=weight))
    return out


def loss_of_batch(logits, batch, settings):
    log_probs, counted = log_probs_of(logits, batch["targets"]), batch["targets"] != IGNORED
    return trl_grpo(log_probs, counted, batch["advantages"], batch["old"], batch["reference"], **settings)[0]


def make_runs():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    batches = draw_batches(np.random.default_rng(44), load(HERE / BASE).config.vocab_size)
    del batches["token_weights"]
    initial = load(HERE / BASE)
    rng = np.random.default_rng(48)
    with torch.no_grad():
        each = [{name: values[i] for name, values in batches.items()} for i in range(BATCHES)]
        batches["reference"] = torch.stack([log_probs_of(logits_of(initial, batch), batch["targets"]) for batch in each])
    noise = rng.standard_normal(batches["reference"].shape).astype(np.float32) * 0.2
    batches["old"] = batches["reference"] + torch.from_numpy(noise)
    batches["advantages"] = torch.from_numpy(rng.standard_normal((BATCHES, 2 * PAIRS)).astype(np.float32))
    folder = emptied("objectives/grpo_runs")
    folder.mkdir()
    for name, settings in VARIANTS.items():
        loss_of = functools.partial(loss_of_batch, settings=settings)
        results = run(batches, loss_of)
        exact = run({n: v.double() if v.is_floating_point() else v for n, v in batches.items()}, loss_of, torch.float64)
        print(name, *(f"{results['losses'][i].item():.4f}" for i in (0, 10, STEPS - 1)), "from fp64:",
              *(f"{key} {(results[key] - exact[key]).abs().max().item():.1e}" for key in results))
        stored = ["inputs", "targets", "lengths", "advantages"] + ["old"] * settings["old"] + ["reference"] * (settings["beta"] > 0)
        save_file({key: as_floats(values) for key, values in ({key: batches[key] for key in stored} | results).items()}, folder / f"{name}.safetensors")


def main():
    save_file(as_doubles(make_losses()), HERE / "objectives/grpo.safetensors")
    make_runs()
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "trl", "safetensors", "numpy")}
    (HERE / "VERSIONS_grpo").write_text("".join(f"{name} {version}\n" for name, version in versions.items()))


if __name__ == "__main__":
    main()
