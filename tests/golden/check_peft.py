"""Checks with transformers and peft what xtrain writes: models that AutoModelForCausalLM loads, adapters that peft loads, and
that they compute the logits that xtrain computed. For people; no test runs it.

    python check_peft.py [--program PROGRAM | --folder FOLDER] [--record]

Without arguments it compiles write_for_peft.cpp beside it (CXX chooses the compiler, CXXFLAGS more flags), runs it into a
temporary folder and checks what is there. --program runs one that is compiled already, --folder takes what one has
written. --record writes the versions that agreed, and by how much, to VERSIONS_peft.
"""

import argparse
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import tempfile

import peft
import safetensors
import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
ADAPTERS = {"gpt2": ["lora", "dora", "embeddings"], "llama": ["lora", "pattern", "embeddings", "all_linear", "prefix"], "qwen2": ["rich", "biases"],
            "bloom": ["dora", "prefix"]}

# Both sides compute in fp32 and sum in another order: a sum of k products is off by eps * sqrt(k) of itself, k is below 50,
# and some 25 such sums follow one another: 25 * 6e-8 * 7 = 1.05e-5 of the largest logit.
TOLERANCE = 1.05e-5


def compiled(folder):
    program = folder / "write_for_peft"
    compiler = shlex.split(os.environ.get("CXX", "c++")) + ["-std=c++20", "-O1"] + shlex.split(os.environ.get("CXXFLAGS", ""))
    subprocess.run([*compiler, f"-I{HERE.parents[1] / 'include'}", HERE / "write_for_peft.cpp", "-pthread", "-o", program], check=True)
    return program


def ours(folder):
    tensors = safetensors.torch.load_file(folder / "ours.safetensors")
    return tensors["tokens"].long(), tensors["logits"]


def theirs(model, tokens):
    model.eval()
    with torch.no_grad():
        return model(input_ids=tokens).logits


def loaded(folder):
    """A model of which every weight was read, and every tensor used."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[what]:
            sys.exit(f"{folder.name}: {what}: {sorted(map(str, info[what]))}")
    return model


def adapted(base, folder):
    """The base model with the adapter, of which every tensor was read."""
    model = peft.PeftModel.from_pretrained(loaded(base), folder)
    read = peft.get_peft_model_state_dict(model)
    # of an adapted embedding peft would write the base as well, which has not changed
    read = {name: tensor for name, tensor in read.items() if not name.endswith("base_layer.weight")}
    saved = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    if set(read) != set(saved):
        sys.exit(f"{folder.name}: peft has {sorted(set(read) ^ set(saved))} on one side only")
    for name, tensor in saved.items():
        if not torch.equal(read[name], tensor):
            sys.exit(f"{folder.name}: peft read other values for {name}")
    return model


class Agreement:
    def __init__(self):
        self.found = []

    def check(self, what, folder, model):
        tokens, expected = ours(folder)
        got = theirs(model, tokens)
        if got.shape != expected.shape:
            sys.exit(f"{what}: logits have shape {list(got.shape)}; ours have {list(expected.shape)}")
        largest = expected.abs().max().item()
        share = (got - expected).abs().max().item() / largest
        self.found.append((what, share))
        print(f"{'ok  ' if share <= TOLERANCE else 'OFF '} {what}: largest difference {share * largest:.1e}, {share:.1e} of the "
              f"largest logit, {largest:.2f}; allowed {TOLERANCE:.1e}")


def check(folder):
    found = Agreement()
    for family, adapters in ADAPTERS.items():
        base = folder / family
        found.check(f"{family}: a saved model in transformers", base, loaded(base))
        for name in adapters:
            adapter, merged = folder / f"{family}_{name}", folder / f"{family}_{name}_merged"
            # tests that cannot fail are none: the adapter must have changed the logits
            changed = (ours(base)[1] - ours(adapter)[1]).abs().max().item()
            if changed < 0.1:
                sys.exit(f"{family}: the adapter {name} changes logits by {changed:.2e} only")
            model = adapted(base, adapter)
            found.check(f"{family}: a saved adapter ({name}) in peft", adapter, model)
            if not merged.exists():
                continue
            found.check(f"{family}: the same merged by peft", adapter, model.merge_and_unload())
            found.check(f"{family}: an adapter ({name}) merged by xtrain in transformers", merged, loaded(merged))
    return found.found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--program", type=pathlib.Path, help="write_for_peft, compiled")
    arguments.add_argument("--folder", type=pathlib.Path, help="what write_for_peft has written")
    arguments.add_argument("--record", action="store_true", help="write VERSIONS_peft")
    given = arguments.parse_args()
    versions = {"python": platform.python_version()}
    versions |= {m.__name__: m.__version__ for m in (torch, transformers, peft, safetensors)}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    torch.use_deterministic_algorithms(True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder
        if folder is None:
            program = given.program or compiled(pathlib.Path(scratch))
            folder = pathlib.Path(scratch) / "written"
            subprocess.run([program.resolve(), folder], check=True)
        found = check(folder)
    if not all(share <= TOLERANCE for _, share in found):
        sys.exit("some logits are off")
    if given.record:
        lines = [f"{name} {version}" for name, version in versions.items()]
        lines += [f"{what}: {share:.1e} of the largest logit" for what, share in found]
        (HERE / "VERSIONS_peft").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
