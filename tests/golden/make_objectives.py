"""Makes objectives/*.safetensors: losses and gradients of training objectives by PyTorch, trl and torchtune. For people; no test runs it.

    python make_objectives.py

Losses of pairs come from the code of trl's DPOTrainer, called with log-probabilities instead of a model; the label smoothing that trl no longer
has for 'sigmoid' comes from torchtune's DPOLoss. Numbers are drawn from NumPy's PCG64; everything is computed and stored in fp64 where the
packages allow it (torchtune's divergences are fp32).
"""

import importlib.metadata
import importlib.util
import pathlib
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from trl import DPOTrainer

HERE = pathlib.Path(__file__).parent
IGNORED = -100


def file_of_torchtune(path):
    """A module of torchtune by its file: importing the package needs an old torchao."""
    folder = pathlib.Path(importlib.util.find_spec("torchtune").origin).parent
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), folder / f"{path}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(rng, *shape, scale=1.0):
    return torch.from_numpy(rng.standard_normal(shape) * scale)


def as_doubles(tensors):
    return {name: (t.detach().to(torch.float64).reshape(-1) if t.dim() == 0 else t.detach().to(torch.float64)).contiguous()
            for name, t in tensors.items()}


def head(rng, n, c, v):
    return drawn(rng, n, c).requires_grad_(), drawn(rng, v, c).requires_grad_()


def gradients(prefix, loss, leaves):
    return {f"{prefix}.d{name}": g for name, g in zip(leaves, torch.autograd.grad(loss, list(leaves.values())))}


# --- cross-entropy with weights, label smoothing and the z-loss of PaLM


def make_cross_entropy():
    rng = np.random.default_rng(40)
    n, c, v = 9, 5, 11
    x, weight = head(rng, n, c, v)
    targets = torch.from_numpy(rng.integers(0, v, n))
    targets[[2, 7]] = IGNORED
    token_weights = drawn(rng, n)
    token_weights[4] = 0
    out = dict(x=x, weight=weight, targets=targets, token_weights=token_weights)
    for name, smoothing, z_loss in (("plain", 0.0, 0.0), ("smoothed", 0.15, 0.0), ("z", 0.0, 0.05), ("smoothed_z", 0.15, 0.05)):
        logits = x @ weight.T
        loss = F.cross_entropy(logits, targets, ignore_index=IGNORED, label_smoothing=smoothing, reduction="none")
        loss = token_weights * (loss + z_loss * (targets != IGNORED).double() * logits.logsumexp(-1) ** 2)
        out |= {f"{name}.loss": loss} | gradients(name, loss.sum(), dict(x=x, weight=weight))
    return out


# --- pairs


class FixedOutputs:
    """What DPOTrainer calls instead of a model: the log-probability of every target."""

    training = True

    def __init__(self, log_probs):
        self.log_probs = log_probs

    def __call__(self, **_):
        zeros = torch.zeros_like(self.log_probs)
        return SimpleNamespace(log_probs=self.log_probs, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())


def trl_loss(log_probs, counted, reference, loss_type, beta, label_smoothing=0.0):
    """Loss and metrics of one pair by trl: rows are the chosen and the rejected sequence."""
    accelerator = SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x)
    metrics = {"train": defaultdict(list)}
    trainer = SimpleNamespace(
        model=FixedOutputs(log_probs), accelerator=accelerator, aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True,
        f_divergence_type="reverse_kl", beta=beta, label_smoothing=label_smoothing, loss_types=[loss_type], loss_weights=[1.0],
        use_weighting=False, _metrics=metrics, _total_train_tokens=0, _tp_size=1)
    mask = F.pad(counted.long(), (1, 0))  # its first token has no prediction
    inputs = dict(completion_mask=mask, input_ids=torch.zeros_like(mask), attention_mask=torch.ones_like(mask),
                  ref_chosen_logps=reference[:1], ref_rejected_logps=reference[1:])
    loss = DPOTrainer._compute_loss(trainer, trainer.model, inputs, return_outputs=False)
    rewards = [metrics["train"][f"rewards/{name}"][0] for name in ("chosen", "rejected", "margins", "accuracies")]
    return loss, torch.tensor(rewards, dtype=torch.float64)


def torchtune_loss(log_probs, counted, reference, beta, label_smoothing):
    logps = (log_probs * counted).sum(1)
    loss, chosen, rejected = file_of_torchtune("rlhf/loss/dpo").DPOLoss(beta, label_smoothing)(logps[:1], logps[1:], reference[:1], reference[1:])
    rewards = torch.stack([chosen, rejected, chosen - rejected, (chosen > rejected).double()]).flatten()
    return loss.sum(), rewards


def make_preference():
    rng = np.random.default_rng(41)
    pairs, t, c, v = 3, 7, 5, 11
    b, n = 2 * pairs, 2 * pairs * t
    x, weight = head(rng, n, c, v)
    targets = torch.from_numpy(rng.integers(0, v, (b, t)))
    for sequence, (prompt, end) in enumerate(((3, 7), (3, 5), (0, 7), (1, 2), (2, 6), (2, 7))):
        targets[sequence, :prompt] = IGNORED
        targets[sequence, end:] = IGNORED
    counted = targets != IGNORED
    log_probs = -F.cross_entropy(x @ weight.T, targets.flatten(), ignore_index=IGNORED, reduction="none").reshape(b, t)
    reference = log_probs.detach().sum(1) + drawn(rng, b, scale=2.0)
    nothing = torch.zeros(b, dtype=torch.float64)
    out = dict(x=x, weight=weight, targets=targets, reference=reference, logp=log_probs.sum(1), count=counted.sum(1))

    def trl(*settings, **more):
        return lambda l, m, r: trl_loss(l, m, r, *settings, **more)

    variants = {
        "sigmoid": (trl("sigmoid", 0.3), reference),
        "ipo": (trl("ipo", 0.3), reference),
        "hinge": (trl("hinge", 0.3), reference),
        "robust": (trl("robust", 0.3, label_smoothing=0.2), reference),
        "sigmoid_norm": (trl("sigmoid_norm", 2.0), reference),
        "reference_free": (trl("sigmoid", 0.3), nothing),
        "cdpo": (lambda l, m, r: torchtune_loss(l, m, r, 0.3, 0.2), reference),
    }
    for name, (compute, of) in variants.items():
        losses, statistics = [], []
        for pair in range(pairs):
            rows = slice(2 * pair, 2 * pair + 2)
            loss, rewards = compute(log_probs[rows], counted[rows], of[rows])
            losses.append(loss)
            statistics.append(rewards)
        total = sum(losses)
        per_token = torch.autograd.grad(total, log_probs, retain_graph=True)[0]
        dlogp = (per_token * counted).sum(1) / counted.sum(1)  # equal at all targets of a sequence
        out |= {f"{name}.loss": torch.stack(losses), f"{name}.statistics": torch.stack(statistics, 1), f"{name}.dlogp": dlogp}
        out |= {f"{name}.d{leaf}": g for leaf, g in zip(("x", "weight"), torch.autograd.grad(total, (x, weight), retain_graph=True))}
    return out


# --- distillation


def make_distillation():
    rng = np.random.default_rng(42)
    n, v, top, temperature = 6, 13, 4, 2.0
    student = drawn(rng, n, v, scale=2.0).requires_grad_()
    teacher = drawn(rng, n, v, scale=2.0)
    targets = torch.from_numpy(rng.integers(0, v, n))
    targets[1] = IGNORED
    counted = (targets != IGNORED).double()
    out = dict(student=student, teacher=teacher, targets=targets, temperature=torch.tensor(temperature))

    def add(name, loss):
        out[f"{name}.loss"] = loss * counted
        out[f"{name}.dstudent"] = torch.autograd.grad((loss * counted).sum(), student)[0]

    for suffix, at in (("", 1.0), ("_warm", temperature)):
        log_q, log_p = F.log_softmax(student / at, -1), F.log_softmax(teacher / at, -1)
        add(f"forward{suffix}", F.kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1))
        log_q = F.log_softmax(student / at, -1)
        add(f"reverse{suffix}", F.kl_div(log_p, log_q, log_target=True, reduction="none").sum(-1))

    stored, ids = F.log_softmax(teacher, -1).topk(top)
    stored[3, 3], ids[3, 3] = 0, -1  # a row with fewer
    out |= {"topk.ids": ids, "topk.teacher": stored}
    is_stored = (ids >= 0).double()
    for name, p in (("topk", stored), ("topk_renormalized", stored - (stored.exp() * is_stored).sum(-1, keepdim=True).log())):
        log_q = F.log_softmax(student, -1).gather(-1, ids.clamp(min=0))
        add(name, (F.kl_div(log_q, p, log_target=True, reduction="none") * is_stored).sum(-1))

    kd = file_of_torchtune("modules/loss/kd_losses")
    for name, of in (("forward", kd.ForwardKLLoss()), ("reverse", kd.ReverseKLLoss())):
        loss = of(student, teacher, targets, normalize=False)
        out |= {f"torchtune.{name}.sum": loss, f"torchtune.{name}.dstudent": torch.autograd.grad(loss, student)[0]}
    log_p = F.log_softmax(teacher, -1)
    out["torchtune.left_out"] = ((log_p.exp() * log_p).sum(-1) * counted).sum()  # of its forward divergence
    return out


def main():
    folder = HERE / "objectives"
    folder.mkdir(exist_ok=True)
    for name, make in (("cross_entropy", make_cross_entropy), ("preference", make_preference), ("distillation", make_distillation)):
        save_file(as_doubles(make()), folder / f"{name}.safetensors")
    versions = {name: importlib.metadata.version(name) for name in ("torch", "trl", "torchtune")}
    (HERE / "VERSIONS_objectives").write_text("".join(f"{name} {version}\n" for name, version in versions.items()))


if __name__ == "__main__":
    main()
