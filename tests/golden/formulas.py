"""What the published families share, each formula written from its paper, and a model that is its file.

Shapes: b batch, t time, c channels, h heads, k key/value heads, d head dim.
"""

import math
import types

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import fixture


class file_model(torch.nn.Module):
    """A model whose parameters are the tensors of its file: same names, same layouts. model[name] is one of them."""

    def __init__(self, config, shapes):
        super().__init__()
        self.settings = types.SimpleNamespace(**config)
        self.config = config
        for name, shape in shapes.items():
            self.register_parameter(name.replace(".", "/"), torch.nn.Parameter(torch.empty(shape)))

    def __getitem__(self, name):
        return getattr(self, name.replace(".", "/"))

    def named_parameters(self, *arguments, **more):
        for name, p in super().named_parameters(*arguments, **more):
            yield name.replace("/", "."), p

    def linear(self, x, name, bias=False):
        return F.linear(x, self[f"{name}.weight"], self[f"{name}.bias"] if bias else None)

    def with_linear_modules(self):
        """Itself, its products computed by modules of the names that the file has: something that peft can put adapters beside."""
        for name, weight in list(self.named_parameters()):
            if weight.dim() != 2 or "embed" in name:
                continue
            *path, last = name.removesuffix(".weight").split(".")
            parent = self
            for part in path:
                if part not in parent._modules:
                    parent.add_module(part, torch.nn.Module())
                parent = parent._modules[part]
            bias = self._parameters.get(name.replace(".", "/").removesuffix("weight") + "bias")
            module = torch.nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
            module.weight, module.bias = weight, bias
            parent.add_module(last, module)
        self.linear = lambda x, name, bias=False: self.get_submodule(name)(x)
        return self

    def load_pretrained(self, folder):
        self.load_state_dict({name.replace(".", "/"): p for name, p in load_file(folder / "model.safetensors").items()})
        return self

    def save_pretrained(self, folder):
        folder.mkdir()
        fixture.write_config(folder, self.config)
        save_file({name: p.detach() for name, p in self.named_parameters()}, folder / "model.safetensors", metadata={"format": "pt"})


def results(model, rows):
    logits = model(rows["inputs"])
    return dict(logits=logits, loss=fixture.cross_entropy(logits, rows["targets"]))


def rms_norm(x, weight, eps):
    """Zhang and Sennrich 2019, equation 4."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def swiglu(gate, up):
    """Shazeer 2020."""
    return F.silu(gate) * up


def angles(positions_bt, dims, base):
    """Su et al. 2021, section 3.2.2: pair i of dims / 2 turns by position * base^(-2i / dims)."""
    frequencies = base ** (-torch.arange(0, dims, 2, dtype=torch.float32) / dims)
    return positions_bt[..., None].float() * frequencies


def turned(first, second, angles_btp):
    cos, sin = angles_btp.cos().unsqueeze(2), angles_btp.sin().unsqueeze(2)  # the same for every head
    return first * cos - second * sin, first * sin + second * cos


def rotary_of_halves(x_bthd, positions_bt, base):
    """Pair i is dims i and i + d/2, as in LLaMA's files."""
    first, second = x_bthd.chunk(2, -1)
    return torch.cat(turned(first, second, angles(positions_bt, x_bthd.shape[-1], base)), -1)


def rotary_of_neighbours(x_bthd, positions_bt, base):
    """Pair i is dims 2i and 2i + 1, as in the paper."""
    first, second = x_bthd[..., 0::2], x_bthd[..., 1::2]
    return torch.stack(turned(first, second, angles(positions_bt, x_bthd.shape[-1], base)), -1).flatten(-2)


def alibi_slopes(heads):
    """Press et al. 2022: 2^(-8i/n) for i = 1..n; where n is no power of two, those of the one below, then every second of the
    one above."""
    def of_power(n):
        return [2.0 ** (-8.0 * i / n) for i in range(1, n + 1)]
    below = 2 ** int(math.log2(heads))
    return torch.tensor(of_power(below) + of_power(2 * below)[0::2][:heads - below])


def causal_bias(t):
    return torch.full((t, t), -math.inf).triu(1)


def attention(q_bthd, k_btkd, v_btkd, bias):
    """softmax(q k / sqrt(d) + bias) v; consecutive query heads share a key/value head."""
    b, t, heads, d = q_bthd.shape
    k_bthd, v_bthd = (x.repeat_interleave(heads // x.shape[2], 2) for x in (k_btkd, v_btkd))
    scores = torch.einsum("bqhd,bshd->bhqs", q_bthd, k_bthd) / math.sqrt(d) + bias
    return torch.einsum("bhqs,bshd->bqhd", scores.softmax(-1), v_bthd).reshape(b, t, heads * d)
