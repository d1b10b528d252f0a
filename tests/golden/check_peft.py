"""Checks with transformers and peft what xtrain writes: models that AutoModelForCausalLM loads, adapters that peft loads, and
that they compute the logits that xtrain computed. For people; no test runs it.

    python check_peft.py [--folder FOLDER] [--record]

Without arguments it compiles write_for_peft.cpp and write_families_for_peft.cpp beside it, one after the other (CXX chooses the
compiler, CXXFLAGS more flags), runs them into a temporary folder and checks what is there. --folder takes what they have
written. --record writes the versions that agreed, and by how much, to VERSIONS_peft.
"""

import argparse
import json
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

import family_adapters
from baichuan import baichuan
from chatglm1 import chatglm1
from chatglm2 import chatglm2
from internlm import internlm, internlm2

HERE = pathlib.Path(__file__).resolve().parent
ADAPTERS = {"gpt2": ["lora", "dora", "embeddings"], "llama": ["lora", "pattern", "embeddings", "all_linear", "prefix"], "qwen2": ["rich", "biases"],
            "bloom": ["dora", "prefix"]}

# Of the others what computes them: transformers' classes, or the formulas that are written out here.
FAMILIES = {"mistral_lora": transformers.MistralForCausalLM, "mixtral_lora": transformers.MixtralForCausalLM,
            "aquila_lora": transformers.LlamaForCausalLM, "bert_pretraining_lora": transformers.BertForPreTraining,
            "bert_classification_lora": transformers.BertForSequenceClassification, "baichuan_lora": baichuan,
            "internlm_lora": internlm, "internlm2_lora": internlm2, "chatglm1_lora": chatglm1, "chatglm2_lora": chatglm2}

# Both sides compute in fp32 and sum in another order: a sum of k products is off by eps * sqrt(k) of itself, k is below 50,
# and some 25 such sums follow one another: 25 * 6e-8 * 7 = 1.05e-5 of the largest logit.
TOLERANCE = 1.05e-5


def compiled(source, folder):
    program = folder / source
    compiler = shlex.split(os.environ.get("CXX", "c++")) + ["-std=c++20", "-O1"] + shlex.split(os.environ.get("CXXFLAGS", ""))
    subprocess.run([*compiler, f"-I{HERE.parents[1] / 'include'}", HERE / f"{source}.cpp", "-pthread", "-o", program], check=True)
    return program


def ours(folder):
    tensors = safetensors.torch.load_file(folder / "ours.safetensors")
    return tensors["tokens"].long(), tensors["logits"]


def theirs(model, tokens):
    model.eval()
    with torch.no_grad():
        result = model(tokens)
    if torch.is_tensor(result):
        return result
    return result.prediction_logits if "prediction_logits" in result else result.logits


def loaded(folder):
    """A model of which every weight was read, and every tensor used."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[what]:
            sys.exit(f"{folder.name}: {what}: {sorted(map(str, info[what]))}")
    return model


def adapted(base, folder):
    """The base model with the adapter, of which every tensor was read."""
    return beside(loaded(base), folder)


def beside(base, folder):
    model = peft.PeftModel.from_pretrained(base, folder)
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


def base_of(family, base):
    """The fixture as a model that peft can put adapters beside."""
    if not issubclass(family, transformers.PreTrainedModel):
        model = family_adapters.formulas_of(family, base)
        model.prepare_inputs_for_generation = None  # peft asks for it
        return model
    config = family.config_class.from_pretrained(HERE / base)
    return family.from_pretrained(HERE / base, config=config, dtype=torch.float32)


def require_usual_targets(folder, base):
    """Where peft has a choice of modules for a family, ours is the same."""
    usual = peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    kind = json.loads((HERE / base / "config.json").read_text())["model_type"]
    ours = json.loads((folder / "adapter_config.json").read_text())["target_modules"]
    if kind in usual and sorted(usual[kind]) != sorted(ours):
        sys.exit(f"{folder.name}: peft adapts {usual[kind]} unless it is told otherwise, xtrain {ours}")


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
    for name, family in FAMILIES.items():
        base = json.loads((HERE / name / "adapter_config.json").read_text())["base_model_name_or_path"]
        require_usual_targets(folder / name, base)
        model = base_of(family, base)
        plain = theirs(model, ours(folder / name)[0])
        if (plain - ours(folder / name)[1]).abs().max().item() < 0.1:
            sys.exit(f"{name}: the adapter changes next to nothing")
        model = beside(model, folder / name)
        found.check(f"{name.removesuffix('_lora')}: a saved adapter in peft", folder / name, model.base_model)
        found.check(f"{name.removesuffix('_lora')}: the same merged by peft", folder / name, model.merge_and_unload())
    experts = folder / "mixtral_experts_merged"
    found.check("mixtral: an adapter of experts merged by xtrain in transformers", experts, loaded(experts))
    return found.found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--folder", type=pathlib.Path, help="what both programs have written")
    arguments.add_argument("--record", action="store_true", help="write VERSIONS_peft")
    given = arguments.parse_args()
    versions = {"python": platform.python_version()}
    versions |= {m.__name__: m.__version__ for m in (torch, transformers, peft, safetensors)}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    torch.use_deterministic_algorithms(True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder
        if folder is None:
            folder = pathlib.Path(scratch) / "written"
            subprocess.run([compiled("write_for_peft", pathlib.Path(scratch)), folder], check=True)
            subprocess.run([compiled("write_families_for_peft", pathlib.Path(scratch)), HERE, folder], check=True)
        found = check(folder)
    if not all(share <= TOLERANCE for _, share in found):
        sys.exit("some logits are off")
    if given.record:
        lines = [f"{name} {version}" for name, version in versions.items()]
        lines += [f"{what}: {share:.1e} of the largest logit" for what, share in found]
        (HERE / "VERSIONS_peft").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
