"""Makes qat/*.safetensors: output, gradients and twenty SGD steps of two layers of quantization-aware training. For people; no test runs it.

    python make_qat.py

The formula is that of torchao's Int8DynActInt4WeightQATLinear, here in fp64, which torchao does not take. The largest number of a group is
half-way between two integers (7.5): one ulp decides which. So the weights before each step are stored, for a test to take every step from the same ones. In
fp32 its forward pass is checked here against torchao's module, bit for bit, and its gradients against PyTorch's own fake_quantize: they pass where the
integer was in the range, ends included. (torchao 0.18 uses torch.clamp, which in the PyTorch of VERSIONS_qat stops gradients at the ends, too.)

weights_only.safetensors is that of Int4WeightOnlyQATQuantizer: weights in unsigned int4 with scales and zero points in bf16, inputs as they are. Its
rounded_float and rounded_bf16 are what torchao's module makes of `up` in those dtypes.
"""

import pathlib

import numpy as np
import torch
import torchao
from safetensors.torch import save_file
from torchao.quantization.qat.fake_quantizer import FakeQuantizerBase
from torchao.quantization.qat.linear import Int4WeightOnlyQATLinear, Int8DynActInt4WeightQATLinear, _get_4w_weight_config

HERE = pathlib.Path(__file__).resolve().parent
STEPS, TOKENS, INPUTS, HIDDEN, OUTPUTS, GROUP = 20, 5, 8, 12, 3, 4


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, zero, lowest, highest):
        q = torch.round(x * (1.0 / scale)) + zero
        ctx.save_for_backward((q >= lowest) & (q <= highest))
        return (q.clamp(lowest, highest) - zero) * scale

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None, None, None, None


def ranges(x):
    return x.detach().amin(-1, keepdim=True).clamp(max=0), x.detach().amax(-1, keepdim=True).clamp(min=0)


def weight(w):
    groups = w.view(w.shape[0], -1, GROUP)
    low, high = ranges(groups)
    scale = (torch.maximum(-low, high) / 7.5).clamp(min=torch.finfo(torch.float32).smallest_normal)
    return Rounded.apply(groups, scale, torch.zeros_like(scale), -8, 7).view_as(w)


def tokens(x):
    low, high = ranges(x)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).eps)
    return Rounded.apply(x, scale, (-128 - torch.round(low / scale)).clamp(-128, 127), -128, 127)


class RoundedToFloatingZero(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, zero):
        q = torch.round((x - (zero - scale * 8)) / scale)
        ctx.save_for_backward((q >= 0) & (q <= 15))
        return (q.clamp(0, 15) - 8) * scale + zero

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None, None


def weight_with_zero_points(w, group=GROUP):
    """In the dtype of w; scales and zero points, and the difference of the two, in bf16."""
    groups = w.view(w.shape[0], -1, group)
    low, high = groups.detach().amin(-1, keepdim=True), groups.detach().amax(-1, keepdim=True)
    scale = ((high - low) / 15).clamp(min=1e-6)
    return RoundedToFloatingZero.apply(groups, scale.bfloat16(), (low + scale * 8).bfloat16()).view_as(w)


def check_weights_only(up):
    """The formula is torchao's in fp32 and in bf16, bit for bit; gradients differ at the ends of the range at most. Returns what torchao makes of `up`."""
    of_dtype = {}
    for name, dtype in (("rounded_float", torch.float32), ("rounded_bf16", torch.bfloat16)):
        w = up.detach().to(dtype).requires_grad_()
        of_dtype[name] = FakeQuantizerBase.from_config(_get_4w_weight_config(GROUP, torch.bfloat16))(w)
        of_dtype[name].sum().backward()
        passed, w.grad = w.grad, None
        mine = weight_with_zero_points(w)
        mine.sum().backward()
        assert torch.equal(mine, of_dtype[name]), name
        groups = mine.detach().view(-1, GROUP)
        at_ends = ((groups == groups.amin(-1, keepdim=True)) | (groups == groups.amax(-1, keepdim=True))).view_as(w)
        assert torch.equal(passed[~at_ends], w.grad[~at_ends]), name
        module = Int4WeightOnlyQATLinear(64, 8, groupsize=32, inner_k_tiles=2, precision=dtype)
        assert torch.equal(module.weight_fake_quantizer(module.weight), weight_with_zero_points(module.weight, 32)), name
    return {name: t.detach().float() for name, t in of_dtype.items()}


def check(x, up, down):
    """The formula in fp32 is torchao's."""
    x, up, down = (t.detach().float().requires_grad_() for t in (x, up, down))
    modules = [Int8DynActInt4WeightQATLinear(w.shape[1], w.shape[0], groupsize=GROUP) for w in (up, down)]
    for module, w in zip(modules, (up, down)):
        module.weight.data.copy_(w.data)
    assert torch.equal(modules[1](modules[0](x)), tokens(tokens(x) @ weight(up).T) @ weight(down).T)
    for x, mine, width, (lowest, highest) in ((up, weight, GROUP, (-8, 7)), (x, tokens, x.shape[1], (-128, 127))):
        groups = x.detach().reshape(-1, width).requires_grad_()
        low, high = ranges(groups)
        symmetric = highest == 7
        scale = torch.maximum(-low, high) / 7.5 if symmetric else (high - low) / 255
        zero = torch.zeros_like(low) if symmetric else (-128 - torch.round(low / scale)).clamp(-128, 127)
        torch.fake_quantize_per_channel_affine(groups, scale.flatten(), zero.flatten().int(), 0, lowest, highest).sum().backward()
        mine(x).sum().backward()
        assert torch.equal(x.grad.view_as(groups), groups.grad), (x.grad.view_as(groups) - groups.grad).abs().sum()
        assert not symmetric or not (groups.grad == 1).all()


def run(x, target, up, down, rounded_x, rounded_w):
    """Output and gradients of two layers, and twenty steps."""
    x, up, down = (t.detach().clone().requires_grad_() for t in (x, up, down))
    tensors = {"x": x.detach(), "target": target, "up": up.detach().clone(), "down": down.detach().clone()}

    def loss_of(x):
        y = rounded_x(rounded_x(x) @ rounded_w(up).T) @ rounded_w(down).T
        return y, 0.5 * ((y - target) ** 2).sum()

    y, loss = loss_of(x)
    loss.backward()
    tensors |= {"y": y, "dx": x.grad.clone(), "dup": up.grad.clone(), "ddown": down.grad.clone()}
    optimizer = torch.optim.SGD([up, down], lr=0.002)
    losses, steps = [], {"up_steps": [], "down_steps": []}  # weights before each step, and after the last
    for step in range(STEPS + 1):
        steps["up_steps"].append(up.detach().clone())
        steps["down_steps"].append(down.detach().clone())
        if step == STEPS:
            break
        optimizer.zero_grad()
        _, loss = loss_of(x.detach())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return tensors | {"losses": torch.tensor(losses, dtype=torch.float64)} | {name: torch.stack(all) for name, all in steps.items()}


def main():
    rng = np.random.default_rng(53)
    draw = lambda *shape: torch.from_numpy(rng.standard_normal(shape))
    x, target = draw(TOKENS, INPUTS), draw(TOKENS, OUTPUTS)
    up, down = 0.3 * draw(HIDDEN, INPUTS), 0.3 * draw(OUTPUTS, HIDDEN)
    check(x, up, down)
    folder = HERE / "qat"
    folder.mkdir(exist_ok=True)
    files = {
        "expected": run(x, target, up, down, tokens, weight),
        "weights_only": run(x, target, up, down, lambda x: x, weight_with_zero_points) | check_weights_only(up),
    }
    for name, tensors in files.items():
        save_file({key: t.detach().contiguous() for key, t in tensors.items()}, folder / f"{name}.safetensors")
    (HERE / "VERSIONS_qat").write_text(f"torch {torch.__version__}\ntorchao {torchao.__version__}\n")


if __name__ == "__main__":
    main()
