"""Makes qat/lora.safetensors: output and gradients of a layer of QAT with LoRA, of three modules in one matrix. For people; no test runs it.

    python make_qat_lora.py

The modules q and v have adapters, k has none and is not rounded, as swap_lora_linear_with_qat of torchtune leaves it. In fp64; in fp32 the forward pass is
checked here against torchtune's own QATLoRALinear, bit for bit, where torchtune can be imported: what torchao moved since torchtune 0.6.1 is put in its old
place before. make_qat.py has the rounding.
"""

import pathlib
import sys
import types

import numpy as np
import torch
from safetensors.torch import save_file

import make_qat

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, INPUTS, RANK, ALPHA = 5, 8, 2, 3.0
OUTPUTS = {"q": 6, "k": 4, "v": 3}


def torchtune_layer():
    import torchao
    from torchao.quantization.qat import fake_quantizer

    def stub(name, **members):
        module = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module

    stub("torchtune", __path__=[str(next(pathlib.Path(p) / "torchtune" for p in sys.path if (pathlib.Path(p) / "torchtune").is_dir()))])
    stub("torchao.dtypes.nf4tensor", linear_nf4=None, to_nf4=None)
    stub("torchtune.modules", __path__=[])
    stub("torchtune.modules.low_precision", _register_nf4_dispatch_ops=None)
    stub("torchtune.modules.peft", AdapterModule=object)
    stub("torchao.quantization.qat.api", FakeQuantizeConfig=object)
    stub("torchao.quantization.qat.fake_quantizer", FakeQuantizer=fake_quantizer.IntxFakeQuantizer)
    source = pathlib.Path(sys.modules["torchtune"].__path__[0]) / "modules" / "peft" / "lora.py"
    stub("torchtune.modules.peft.lora")
    members = vars(sys.modules["torchtune.modules.peft.lora"])
    exec(compile(source.read_text(), str(source), "exec"), members)
    return members["QATLoRALinear"], torchao


def rounded(x, w):
    return make_qat.tokens(x) @ make_qat.weight(w).T


def adapted(x, w, a, b):
    return rounded(x, w) + ALPHA / RANK * ((x @ a.T) @ b.T)


def check(x, w, a, b):
    from torchao.quantization.qat import Int8DynActInt4WeightQATQuantizer

    quantizer = Int8DynActInt4WeightQATQuantizer(groupsize=make_qat.GROUP)
    layer, torchao = torchtune_layer()
    module = layer(w.shape[1], w.shape[0], RANK, ALPHA, 0.0, quantizer.get_activation_fake_quantize_config(), quantizer.get_weight_fake_quantize_config())
    x, w, a, b = (t.detach().float() for t in (x, w, a, b))
    module.weight.data.copy_(w), module.lora_a.weight.data.copy_(a), module.lora_b.weight.data.copy_(b)
    assert torch.equal(module(x), adapted(x, w, a, b))
    return torchao


def main():
    rng = np.random.default_rng(54)
    draw = lambda *shape: torch.from_numpy(rng.standard_normal(shape)).requires_grad_()
    x = draw(TOKENS, INPUTS)
    w = {name: (0.3 * draw(outputs, INPUTS)).detach().requires_grad_() for name, outputs in OUTPUTS.items()}
    a = {name: draw(RANK, INPUTS) for name in ("q", "v")}
    b = {name: draw(OUTPUTS[name], RANK) for name in ("q", "v")}
    torchao = check(x, w["q"], a["q"], b["q"])
    y = torch.cat([adapted(x, w[n], a[n], b[n]) if n in a else x @ w[n].T for n in OUTPUTS], dim=1)
    dy = draw(*y.shape).detach()
    y.backward(dy)
    tensors = {"x": x, "y": y, "dy": dy, "dx": x.grad} | {n: t for n, t in w.items()}
    for name in a:
        tensors |= {f"{name}.a": a[name], f"{name}.b": b[name], f"{name}.da": a[name].grad, f"{name}.db": b[name].grad}
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, HERE / "qat" / "lora.safetensors")
    print(torch.__version__, torchao.__version__)


if __name__ == "__main__":
    main()
