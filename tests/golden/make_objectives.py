"""Makes objectives/*.safetensors: losses and gradients of training objectives by PyTorch, trl and torchtune. For people; no test runs it.

    python make_objectives.py

Losses of pairs, of labeled answers and of scores come from the code of trl's trainers, called with log-probabilities or scores instead of a model;
the label smoothing that trl no longer has for 'sigmoid' comes from torchtune's DPOLoss. Numbers are drawn from NumPy's PCG64; everything is computed
and stored in fp64 where the packages allow it (torchtune's divergences are fp32).
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
from trl import DPOTrainer, KTOTrainer, RewardTrainer
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

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


class KeepsDouble(torch.Tensor):
    """ORPOTrainer computes in fp32, whatever it is given; this stays in fp64."""

    def float(self):
        return self


ACCELERATOR = SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x)


def means(log_probs, counted):
    return (log_probs * counted).sum(1) / counted.sum(1)


def rewards_of(chosen, rejected):
    return torch.stack([chosen, rejected, chosen - rejected, (chosen > rejected).to(chosen.dtype)]).flatten().detach()


def trl_orpo(log_probs, counted, reference, beta):
    """trl's odds ratio loss of one pair, and the negative log-likelihood of the chosen answer per target."""
    chosen, rejected = means(log_probs, counted).as_subclass(KeepsDouble).split(1)
    trainer = SimpleNamespace(beta=beta, accelerator=ACCELERATOR)
    ratio, *rewards, _, _ = ORPOTrainer.odds_ratio_loss(trainer, chosen, rejected)
    plain = torch.Tensor
    return (-chosen - ratio).sum().as_subclass(plain), rewards_of(*(r.as_subclass(plain) for r in rewards))


def trl_simpo(log_probs, counted, reference, beta, gamma, nll_weight=0.0, label_smoothing=0.0):
    """trl's SimPO loss of one pair, and that likelihood with a weight."""
    chosen, rejected = means(log_probs, counted).split(1)
    trainer = SimpleNamespace(beta=beta, simpo_gamma=gamma, alpha=0.0, label_smoothing=label_smoothing, loss_type="simpo", accelerator=ACCELERATOR)
    loss, *rewards = CPOTrainer.cpo_loss(trainer, chosen, rejected)
    return (loss - nll_weight * chosen).sum(), rewards_of(*rewards)


def trl_kto(log_probs, counted, reference, labels, loss_type, beta, desirable_weight=1.0, undesirable_weight=1.0):
    """Loss and metrics of a micro-batch by trl: rows are answers, and other records' answers to the same prompts, in turn."""
    metrics = {"train": defaultdict(list)}
    own = log_probs[0::2]
    trainer = SimpleNamespace(
        model=FixedOutputs(own), accelerator=ACCELERATOR, aux_loss_enabled=False, precompute_ref_logps=True, calculate_KL=loss_type == "kto",
        beta=beta, loss_type=loss_type, desirable_weight=desirable_weight, undesirable_weight=undesirable_weight, _metrics=metrics,
        _total_train_tokens=0, _tp_size=1, _compute_kl_logps=lambda model, batch: (log_probs * counted)[1::2].sum(1))
    mask = F.pad(counted[0::2].long(), (1, 0))
    inputs = dict(completion_mask=mask, input_ids=torch.zeros_like(mask), attention_mask=torch.ones_like(mask), label=labels,
                  ref_logps=reference[0::2], ref_KL_logps=reference[1::2])
    loss = KTOTrainer._compute_loss(trainer, trainer.model, inputs, return_outputs=False)
    names = ("rewards/chosen", "rewards/rejected", "rewards/margins", "kl")
    statistics = [sum(metrics["train"][name]) for name in names]  # one value each, or none without answers of that label
    return loss, torch.tensor(statistics, dtype=torch.float64)


def trl_reward(chosen, rejected, center=None, margin=None):
    """trl's loss and metrics of one pair, from its scores."""
    metrics = {"train": defaultdict(list)}
    trainer = SimpleNamespace(model=SimpleNamespace(training=True), accelerator=ACCELERATOR, args=SimpleNamespace(center_rewards_coefficient=center),
                              _metrics=metrics, _total_train_tokens=0, _tp_size=1)
    inputs = dict(attention_mask=torch.ones(2, 1))
    outputs = SimpleNamespace(logits=torch.stack([chosen, rejected]).reshape(2, 1))
    if margin is None:
        loss = RewardTrainer.compute_loss(trainer, lambda **_: outputs, inputs)
    else:  # not given to the model
        loss = RewardTrainer.compute_loss(trainer, lambda **_: outputs, inputs | dict(margin=torch.tensor([margin], dtype=chosen.dtype)))
    mean, margins, accuracy = (metrics["train"][name][0] for name in ("mean_reward", "margin", "accuracy"))
    return loss, torch.tensor([mean + margins / 2, mean - margins / 2, margins, accuracy], dtype=torch.float64)


def make_reward():
    rng = np.random.default_rng(47)
    pairs = 3
    scores = drawn(rng, 2 * pairs, scale=2.0).requires_grad_()
    out = dict(scores=scores)
    for name, settings in (("plain", {}), ("centered", dict(center=0.05, margin=0.7))):
        each = [trl_reward(*scores[2 * i:2 * i + 2], **settings) for i in range(pairs)]
        out |= {f"{name}.loss": torch.stack([loss for loss, _ in each]), f"{name}.statistics": torch.stack([s for _, s in each], 1)}
        out[f"{name}.dscores"] = torch.autograd.grad(sum(loss for loss, _ in each), scores)[0]
    return out


def make_kto():
    """Log-probabilities of four answers and of four others."""
    rng = np.random.default_rng(46)
    answers = 4
    logp = -drawn(rng, 2 * answers, scale=3.0).abs()
    reference = logp - 0.4 + drawn(rng, 2 * answers)
    logp.requires_grad_()
    labels = torch.tensor([True, False, False, True])
    out = dict(logp=logp, reference=reference, labels=labels.repeat_interleave(2).double())
    for name, settings in (("kto", dict(loss_type="kto", beta=0.3)),
                           ("weighted", dict(loss_type="kto", beta=0.3, desirable_weight=1.5, undesirable_weight=0.8)),
                           ("apo_zero", dict(loss_type="apo_zero_unpaired", beta=0.3))):
        loss, statistics = trl_kto(logp[:, None], torch.ones(2 * answers, 1), reference, labels, **settings)
        out |= {f"{name}.loss": loss, f"{name}.statistics": statistics, f"{name}.dlogp": torch.autograd.grad(loss, logp)[0]}
    return out


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
        "orpo": (lambda l, m, r: trl_orpo(l, m, r, 0.3), nothing),
        "simpo": (lambda l, m, r: trl_simpo(l, m, r, 2.0, 0.6), nothing),
        "simpo_nll": (lambda l, m, r: trl_simpo(l, m, r, 2.0, 0.6, 0.7, 0.1), nothing),
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
    for name, make in (("cross_entropy", make_cross_entropy), ("preference", make_preference), ("kto", make_kto), ("reward", make_reward),
                       ("distillation", make_distillation)):
        save_file(as_doubles(make()), folder / f"{name}.safetensors")
    versions = {name: importlib.metadata.version(name) for name in ("torch", "trl", "torchtune")}
    (HERE / "VERSIONS_objectives").write_text("".join(f"{name} {version}\n" for name, version in versions.items()))


if __name__ == "__main__":
    main()
