#!/bin/sh
# transformers 5.24.0: GPTNeoXTokenizer with a tokenizer.json ignores "add_eos_token": true of tokenizer_config.json.
#
# One would expect: the end token is appended to each text, as tokenizer_config.json says and as transformers 4.57.6 does.
# What happens: 5.24.0 appends nothing, without an error or a warning.
# What it means for a user: a model that is trained on documents tokenized by 5.24.0 never sees where a document ends.
#   Append the end token yourself, and look at the last token of a document before training.
# Seen on 2026-11-27.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export HF_HUB_OFFLINE=1
python3 -m venv "$dir/old"
python3 -m venv "$dir/new"
"$dir/old/bin/pip" -q install transformers==4.57.6 tokenizers==0.22.2
"$dir/new/bin/pip" -q install transformers==5.24.0 tokenizers==0.23.3
cd "$dir"
mkdir model
old/bin/python - << 'EOF'
import json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
tokenizer.save("model/tokenizer.json")
end = "<|endoftext|>"
json.dump({"tokenizer_class": "GPTNeoXTokenizer", "add_eos_token": True, "eos_token": end, "bos_token": end, "unk_token": end},
          open("model/tokenizer_config.json", "w"))
EOF
cat > show.py << 'EOF'
import sys

import tokenizers
import transformers

print("transformers", transformers.__version__, "tokenizers", tokenizers.__version__)
tokenizer = transformers.AutoTokenizer.from_pretrained("model")
ids = tokenizer("ab")["input_ids"]
end = tokenizer.eos_token_id
print("class:", type(tokenizer).__name__, " add_eos_token:", getattr(tokenizer, "add_eos_token", None))
print("tokens of 'ab':", ids, " end token:", end)
assert end == 256 and len(ids) == (3 if sys.argv[1] == "old" else 2), ids
assert (ids[-1] == end) == (sys.argv[1] == "old")
EOF
old/bin/python show.py old
new/bin/python show.py new
echo "as expected by this finding"
