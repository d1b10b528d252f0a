#!/bin/sh
# llama.cpp's convert_hf_to_gguf.py (in llama-cpp-python 0.3.36) stops with KeyError 'n_ctx' on a GPT-2 saved by transformers 5.24.0.
#
# One would expect: a GPT-2 saved by save_pretrained is converted; the context length is n_positions of config.json.
# What happens: the converter reads "n_ctx", an attribute that GPT-2's config had as a second name, and that transformers 5 does
#   not write: KeyError: 'n_ctx'. GPT-2 on the Hub, whose config.json is older, is converted.
# What it means for a user: add "n_ctx" with the value of n_positions to config.json before converting.
# Seen on 2026-11-28.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export HF_HUB_OFFLINE=1
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q install transformers==5.24.0 tokenizers==0.23.3 torch==2.15.0 numpy==2.4.6 sentencepiece==0.2.3 protobuf==7.36.2
"$dir/venv/bin/pip" -q download llama-cpp-python==0.3.36 --no-deps --no-binary llama-cpp-python -d "$dir"
cd "$dir"
tar xzf llama_cpp_python-0.3.36.tar.gz
cat > save.py << 'EOF'
import json

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

print("transformers", transformers.__version__)
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={one: i for i, one in enumerate(alphabet + ["<|endoftext|>"])}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>").save_pretrained("model")
config = transformers.GPT2Config(vocab_size=257, n_positions=32, n_embd=32, n_layer=1, n_head=2, bos_token_id=256, eos_token_id=256)
transformers.GPT2LMHeadModel(config).save_pretrained("model")
saved = json.load(open("model/config.json"))
print("n_positions:", saved["n_positions"], " n_ctx is there:", "n_ctx" in saved)
assert "n_ctx" not in saved
EOF
venv/bin/python save.py
converter=llama_cpp_python-0.3.36/vendor/llama.cpp/convert_hf_to_gguf.py
venv/bin/python $converter model --outfile model.gguf > log 2>&1 && status=0 || status=$?
tail -n 1 log
tail -n 1 log | grep -q "KeyError: 'n_ctx'"
test "$status" -ne 0
echo "as expected by this finding"
