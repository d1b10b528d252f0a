"""Makes objectives/ppo.safetensors: rewards, advantages, returns, losses and gradients of PPO by torchtune (rlhf.rewards, rlhf.loss.PPOLoss). For
people; no test runs it.

    python make_ppo.py
"""

import importlib.metadata
import importlib.util
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file

from fixture import HERE

# torchtune's files alone: its package imports others, which need an older torchao
FOLDER = pathlib.Path(importlib.util.find_spec("torchtune").origin).parent / "rlhf"


def file_of(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rlhf = file_of(FOLDER / "rewards.py")
sys.modules["torchtune"] = types.ModuleType("torchtune")
sys.modules["torchtune"].rlhf = rlhf
PPOLoss = file_of(FOLDER / "loss/ppo.py").PPOLoss

KL_COEFF, GAMMA, LAMBDA, EPSILON, VALUE_CLIP_RANGE = 0.1, 0.98, 0.9, 0.2, 0.3


def make():
    draw = torch.Generator().manual_seed(53)
    normal = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.float64)
    lengths = torch.tensor([6, 1, 4, 3])
    b, t = len(lengths), 6
    mask = torch.arange(t)[None, :] < lengths[:, None]
    old = (-2 + 0.5 * normal(b, t)).masked_fill(~mask, 1.0)
    reference = torch.where(mask, old + 0.4 * normal(b, t), old)
    scores, values = normal(b), normal(b, t).masked_fill(~mask, 0.0)
    rewards, kl, _ = rlhf.get_rewards_ppo(scores, old, reference, KL_COEFF, lengths - 1)
    raw, returns = rlhf.estimate_advantages(values, rewards, GAMMA, LAMBDA)
    advantages = rlhf.whiten(returns - values, mask, shift_mean=False).masked_fill(~mask, 0.0)
    log_probs = (old + 0.4 * normal(b, t)).requires_grad_()
    new_values = (values + 0.5 * normal(b, t)).requires_grad_()
    loss = PPOLoss(epsilon=EPSILON, value_clip_range=VALUE_CLIP_RANGE, value_coeff=1.0)
    total, policy_loss, value_loss, _, clip_ratio = loss(old, log_probs, advantages, values, new_values, returns, mask, mask)
    total.backward()
    return dict(
        mask=mask, old=old, reference=reference, scores=scores, values=values, rewards=rewards * mask, kl=kl * mask, advantages=advantages,
        unwhitened=(returns - values) * mask, returns=returns * mask, log_probs=log_probs.detach(), new_values=new_values.detach(), policy_loss=policy_loss,
        value_loss=value_loss, clip_ratio=clip_ratio, dlog_probs=log_probs.grad, dvalues=new_values.grad)


if __name__ == "__main__":
    save_file({name: value.double().contiguous() for name, value in make().items()}, HERE / "objectives/ppo.safetensors")
    packages = "".join(f"{name} {importlib.metadata.version(name)}\n" for name in ("torch", "torchtune", "safetensors"))
    (HERE / "VERSIONS_ppo").write_text(packages)
    sys.stdout.write(packages)
