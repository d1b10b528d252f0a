#!/bin/sh
# trl 1.16.0 (with datasets 5.2.0, transformers 5.24.0): a record without chat_template_kwargs stops the tokenization.
#
# One would expect: chat_template_kwargs is optional in each record, so a file in which only some records have it works.
# What happens: datasets fills the column with null where a record lacks it, and SFTTrainer unpacks the null as a mapping:
#   TypeError. A default is used only where the whole column is missing.
# What it means for a user: write "chat_template_kwargs": {} into each record that has none, beside records that have some;
#   with that the JSON file loads and each record's text is as meant.
# Seen on 2026-11-27.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 HF_HOME="$dir/home"
python3 -m venv "$dir/env"
"$dir/env/bin/pip" -q install torch==2.15.0 transformers==5.24.0 trl==1.16.0 datasets==5.2.0 accelerate==1.15.0
cd "$dir"
env/bin/python - << 'EOF'
import json
import tempfile
import warnings

import datasets
import torch
import transformers
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

warnings.simplefilter("ignore", FutureWarning)
transformers.utils.logging.set_verbosity_error()
datasets.disable_progress_bars()
print("trl", trl.__version__, "datasets", datasets.__version__, "transformers", transformers.__version__)
letters = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["<pad>", "<end>"]
inner = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
inner.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<end>")
tokenizer.chat_template = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if think is defined %}think={{ think }}{% endif %}")


def run(title, records):
    with open("chats.jsonl", "w") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
    data = datasets.load_dataset("json", data_files="chats.jsonl", split="train", cache_dir=tempfile.mkdtemp(dir="."))
    print(f"\n{title}")
    if "chat_template_kwargs" in data.column_names:
        print("the column as datasets has it:", data["chat_template_kwargs"][:])
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(letters), hidden_size=8, intermediate_size=16, num_hidden_layers=1,
                                         num_attention_heads=1, num_key_value_heads=1))
    arguments = trl.SFTConfig(output_dir="out", report_to=[], use_cpu=True, bf16=False, max_length=None)
    try:
        trainer = trl.SFTTrainer(model=model, args=arguments, train_dataset=data, processing_class=tokenizer)
    except TypeError as error:
        print("TypeError:", error)
        return str(error)
    texts = [tokenizer.decode(row["input_ids"]) for row in trainer.train_dataset]
    print("texts:", texts)
    return texts


chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
none = run("no record has it", [{"messages": chat}, {"messages": chat}])
some = run("one record has it", [{"messages": chat}, {"messages": chat, "chat_template_kwargs": {"think": False}}])
empty = run("the other record has it empty", [{"messages": chat, "chat_template_kwargs": {}},
                                              {"messages": chat, "chat_template_kwargs": {"think": False}}])

assert isinstance(none, list)
assert isinstance(some, str) and "NoneType" in some
assert isinstance(empty, list) and "think" not in empty[0] and "think=False" in empty[1]
print("\nas expected by this finding")
EOF
