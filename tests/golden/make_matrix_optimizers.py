"""Makes optimizers/matrix.safetensors: steps of the optimizers that see whole matrices. For people; no test runs it.

    python make_matrix_optimizers.py

A tall matrix, a wide one and a vector take 50 steps on gradients that are drawn, not computed. Numbers are drawn from NumPy's PCG64, rounded to
multiples of 1/1024, so that they are the same everywhere.

    weights.<name>                         before the first step
    gradients.<name>                       of all steps: [steps, ...]
    adafactor.<case>.<name>                weights after 50 steps of transformers' Adafactor, in fp32; torch: of torch.optim.Adafactor
    adafactor.<case>.<name>.row, .column   its factors
    muon.<case>.<name>                     weights after 50 steps of the formula of torch.optim.Muon, with Newton-Schulz in fp64
    muon.<case>.<name>.torch               of torch.optim.Muon itself, whose Newton-Schulz is in bf16
"""

import math
import pathlib

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers.optimization import Adafactor

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = {"tall": (12, 5), "wide": (4, 9), "vector": (7,)}
STEPS = 50
A, B, C = 3.4445, -4.7750, 2.0315

ADAFACTOR = {
    "plain": dict(lr=1e-2, scale_parameter=False, relative_step=False),
    "scaled": dict(lr=3e-2, scale_parameter=True, relative_step=False, beta1=0.9, clip_threshold=0.5),
    "relative": dict(scale_parameter=True, relative_step=True, warmup_init=False),
    "warmup": dict(scale_parameter=True, relative_step=True, warmup_init=True),
}
MUON = {
    "original": dict(lr=2e-2, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn="original"),
    "rms": dict(lr=2e-2, weight_decay=0.2, momentum=0.9, nesterov=False, adjust_lr_fn="match_rms_adamw"),
    "spectral": dict(lr=2e-2, weight_decay=0.0, momentum=0.9, nesterov=True, adjust_lr_fn="spectral_unclamped"),
}


def drawn(rng, shape):
    return torch.from_numpy(np.round(rng.standard_normal(shape) * 1024).astype(np.float32) / 1024)


def run(make, weights, gradients, dtype):
    """Steps an optimizer; returns the parameters and the optimizer."""
    parameters = {name: torch.nn.Parameter(w.to(dtype).clone()) for name, w in weights.items()}
    optimizer = make(list(parameters.values()))
    for step in range(STEPS):
        for name, p in parameters.items():
            p.grad = gradients[name][step].to(dtype).clone()
        optimizer.step()
    return parameters, optimizer


def orthogonalized(update):
    x = update.T if update.shape[0] > update.shape[1] else update
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x.T if update.shape[0] > update.shape[1] else x


def adjusted(shape, how):
    out, into = shape
    return {"original": math.sqrt(max(1, out / into)), "match_rms_adamw": 0.2 * math.sqrt(max(out, into)), "spectral_unclamped": math.sqrt(out / into)}[how]


def muon(weight, gradients, lr, weight_decay, momentum, nesterov, adjust_lr_fn):
    w, buffer = weight.double(), torch.zeros_like(weight, dtype=torch.float64)
    for gradient in gradients.double():
        buffer = momentum * buffer + (1 - momentum) * gradient
        update = (1 - momentum) * gradient + momentum * buffer if nesterov else buffer
        w = w * (1 - lr * weight_decay) - lr * adjusted(w.shape, adjust_lr_fn) * orthogonalized(update)
    return w.float()


def main():
    rng = np.random.default_rng(43)
    weights = {name: drawn(rng, shape) for name, shape in SHAPES.items()}
    gradients = {name: drawn(rng, (STEPS, *shape)) for name, shape in SHAPES.items()}
    tensors = {f"weights.{n}": w for n, w in weights.items()} | {f"gradients.{n}": g for n, g in gradients.items()}
    for case, settings in ADAFACTOR.items():
        parameters, optimizer = run(lambda p, s=settings: Adafactor(p, **s), weights, gradients, torch.float32)
        for name, p in parameters.items():
            tensors[f"adafactor.{case}.{name}"] = p.detach()
            if p.dim() == 2:
                tensors[f"adafactor.{case}.{name}.row"] = optimizer.state[p]["exp_avg_sq_row"]
                tensors[f"adafactor.{case}.{name}.column"] = optimizer.state[p]["exp_avg_sq_col"]
    parameters, _ = run(lambda p: torch.optim.Adafactor(p, lr=5e-2, foreach=False), weights, gradients, torch.float32)
    tensors |= {f"adafactor.torch.{name}": p.detach() for name, p in parameters.items()}
    matrices = {name: w for name, w in weights.items() if w.dim() == 2}
    for case, settings in MUON.items():
        parameters, _ = run(lambda p, s=settings: torch.optim.Muon(p, **s), matrices, gradients, torch.float32)
        for name, p in parameters.items():
            tensors[f"muon.{case}.{name}"] = muon(weights[name], gradients[name], **settings)
            tensors[f"muon.{case}.{name}.torch"] = p.detach()
    folder = HERE / "optimizers"
    folder.mkdir(exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "matrix.safetensors")
    (HERE / "VERSIONS_matrix_optimizers").write_text(f"torch {torch.__version__}\ntransformers {transformers.__version__}\n")


if __name__ == "__main__":
    main()
