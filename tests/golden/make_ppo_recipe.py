"""Makes ppo_recipe/: torchtune's recipe ppo_full_finetune_single_device itself, on the cpu, on tiny models of Mistral, and what it logs in every step. Answers
are sampled with top_k 1, so that they depend on no random numbers. Of the first run a step's batch is one batch of PPO, so that their order does not matter;
of the second it is two, each in two micro-batches, in the order of the prompts. For people; no test runs it.

    python make_ppo_recipe.py
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import pathlib
import runpy
import shutil
import sys
import tempfile
import types

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent

FOLDER = HERE / "ppo_recipe"


class Stub(types.ModuleType):
    """torchao's newer versions lack what torchtune imports; this recipe needs none of it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (torch.nn.Module,), {}) if name[0].isupper() else lambda *_, **__: lambda function: function


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "torchao" else None

    def create_module(self, spec):
        module = Stub(spec.name)
        module.__path__, module.__version__ = [], "0.7.0"
        return module

    def exec_module(self, module):
        pass


PROMPTS = [[1, 17, 5], [1, 33, 20, 9, 41], [1, 8], [1, 50, 51, 12, 30], [1, 22, 22, 40], [1, 9, 10, 11, 12, 13], [1, 44], [1, 3, 60, 6]]
STOP = [2, 7, 19, 28, 35, 52]


class Tokens:
    """In place of a tokenizer: prompts are tokens already."""

    eos_id, pad_id, max_seq_len, stop_tokens = 2, 0, None, [2]


class Prompts(torch.utils.data.Dataset):
    def __init__(self, tokenizer):
        pass

    def __len__(self):
        return len(PROMPTS)

    def __getitem__(self, i):
        return {"tokens": PROMPTS[i], "labels": PROMPTS[i]}


def tokens():
    return Tokens()


def prompts(tokenizer):
    return Prompts(tokenizer)


COMMON = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
              rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=None, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
SIZES = dict(num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=16, intermediate_dim=24, max_seq_len=32)
SETTINGS = dict(batch_size=4, num_steps=32, ppo_epochs=2, ppo_batch_size=4, gradient_accumulation_steps=1, forward_batch_size=2, max_generated_tokens=8,
                temperature=0.7, top_k=1, min_response_length=2, penalise_no_eos=True, reward_penalty=-3, stop_token_ids=STOP, whiten_rewards=False, gamma=0.9,
                lmbda=0.95, kl_coeff=0.2)
ACCUMULATED = dict(batch_size=8, gradient_accumulation_steps=2, forward_batch_size=4)
LOSS = dict(epsilon=0.15, value_coeff=0.3, value_clip_range=0.25)
LEARNING_RATE, MOMENTUM = 2e-2, 0.5


def models():
    from transformers import MistralConfig, MistralForCausalLM, MistralForSequenceClassification

    for seed, name, kind, extra in (
        (3, "policy", MistralForCausalLM, dict(vocab_size=61)),
        (4, "reward", MistralForSequenceClassification, dict(vocab_size=63, num_labels=1, pad_token_id=0)),
    ):
        model = kind(MistralConfig(**COMMON, **extra))
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in model.parameters():
                values = torch.randn(p.shape, generator=draw)
                p.copy_(0.3 * values if p.dim() > 1 else 1 + 0.1 * values)
            if name == "policy":
                model.lm_head.weight[0] = 0  # token 0 is never the most probable one: see kept()
        model.save_pretrained(FOLDER / name)
        (FOLDER / name / "generation_config.json").unlink(missing_ok=True)


def run(folder, changes):
    def checkpointer(name, kind, output):
        return {"_component_": "torchtune.training.FullModelHFCheckpointer", "checkpoint_dir": str(FOLDER / name), "checkpoint_files": ["model.safetensors"],
                "output_dir": f"{folder}/{output}", "model_type": kind}

    config = {
        "output_dir": folder, "tokenizer": {"_component_": "make_ppo_recipe.tokens"}, "dataset": {"_component_": "make_ppo_recipe.prompts"},
        "policy_model": {"_component_": "torchtune.models.mistral.mistral", "vocab_size": 61, **SIZES},
        "reward_and_value_model": {"_component_": "torchtune.models.mistral._component_builders.mistral_classifier", "num_classes": 1, "vocab_size": 63, **SIZES},
        "checkpointer": {**checkpointer("policy", "MISTRAL", "policy"), "recipe_checkpoint": None},
        "ref_policy_checkpointer": checkpointer("policy", "MISTRAL", "policy"), "value_checkpointer": checkpointer("reward", "REWARD", "value"),
        "reward_checkpointer": checkpointer("reward", "REWARD", "value"), "resume_from_checkpoint": False, "seed": 1, "shuffle": False, "device": "cpu",
        "compile": False, "optimizer": {"_component_": "torch.optim.SGD", "lr": LEARNING_RATE, "momentum": MOMENTUM}, "optimizer_in_bwd": False,
        "log_peak_memory_stats": False, "enable_activation_checkpointing": False, "enable_kv_cache": True, "dtype": "fp32", **SETTINGS, **changes,
        "loss": {"_component_": "torchtune.rlhf.loss.PPOLoss", **LOSS},
        "metric_logger": {"_component_": "torchtune.training.metric_logging.DiskLogger", "log_dir": f"{folder}/logs"}, "log_every_n_steps": 1,
    }
    pathlib.Path(folder, "config.yaml").write_text(json.dumps(config))
    recipe = pathlib.Path(importlib.metadata.distribution("torchtune").locate_file("recipes"))
    sys.argv = ["recipe", "--config", f"{folder}/config.yaml"]
    with contextlib.suppress(SystemExit):  # its main ends with sys.exit
        runpy.run_path(str(recipe / "ppo_full_finetune_single_device.py"), run_name="__main__")
    (log,) = pathlib.Path(folder, "logs").iterdir()
    steps = [dict(pair.split(":") for pair in line.split(" | ")[1].split()) for line in log.read_text().splitlines()]
    return {name: torch.tensor([float(step[name]) for step in steps], dtype=torch.float64) for name in steps[0] if not name.startswith("tokens_per")}


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder())
    torch.set_num_threads(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    models()
    from torchtune import rlhf

    truncate, answers = rlhf.truncate_sequence_at_first_stop_token, []

    def kept(sequences, stop_tokens, fill_value=0):
        assert (sequences != 0).all(), "the recipe takes token 0 in an answer for padding"
        mask, truncated = truncate(sequences, stop_tokens, fill_value)
        answers.append(truncated.clone())
        return mask, truncated

    rlhf.truncate_sequence_at_first_stop_token = kept
    found = {}
    for prefix, changes in (("", {}), ("accumulated.", ACCUMULATED)):
        answers.clear()
        if changes:
            torch.randperm = lambda n, **_: torch.arange(n)
        with tempfile.TemporaryDirectory() as folder:
            found |= {prefix + name: value for name, value in run(folder, changes).items()}
        found[prefix + "answers"] = torch.cat(answers).double()
    save_file(found, FOLDER / "steps.safetensors")
    packages = "".join(f"{name} {importlib.metadata.version(name)}\n" for name in ("torch", "torchtune", "transformers", "safetensors"))
    (HERE / "VERSIONS_ppo_recipe").write_text(packages)
    print(packages, {name: value.tolist() for name, value in found.items()})
