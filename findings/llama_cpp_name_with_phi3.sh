#!/bin/sh
# llama-cpp-python 0.3.36: a model of any family is not loaded if its general.name contains "phi3" or "phi-3" and its vocabulary
# has no <|endoftext|>.
#
# One would expect: general.name is a title for people. A model named "x-phi3" and the same one named "x" load alike.
# What happens: llama.cpp takes the model for Phi-3 by that name, looks for Phi-3's tokens with unordered_map::at, and loading ends
#   with the exception "unordered_map::at", or "_Map_base::at", which says neither the name nor the token. It is an ordinary
#   error, not a crash. Where the token exists, spaces behind special tokens are dropped instead.
# What it means for a user: do not put "phi3" or "phi-3" in the name of a converted model of another family; the converter takes
#   it from the folder. Changing general.name in the file is enough.
# The package is built from source where pip has no wheel of it: this needs cmake and a C++ compiler, and takes minutes.
# Seen on 2026-11-28.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q install llama-cpp-python==0.3.36 gguf==0.19.0 numpy==2.4.6
cd "$dir"
cat > write.py << 'EOF'
import gguf
import numpy as np

random = np.random.default_rng(1)
tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["\u2581"]
hidden, feed_forward, vocabulary = 32, 64, len(tokens)
for path, name in (("plain.gguf", "tiny"), ("phi3.gguf", "tiny-phi3"), ("phi-3.gguf", "Tiny Phi-3")):
    file = gguf.GGUFWriter(path, "llama")
    file.add_name(name)
    file.add_context_length(64)
    file.add_embedding_length(hidden)
    file.add_block_count(1)
    file.add_feed_forward_length(feed_forward)
    file.add_head_count(2)
    file.add_head_count_kv(2)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_vocab_size(vocabulary)
    file.add_tokenizer_model("llama")
    file.add_token_list(tokens)
    file.add_token_scores([0.0] * vocabulary)
    file.add_token_types([2, 3, 3] + [6] * 256 + [1])
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)

    def matrix(rows, columns):
        return (0.1 * random.standard_normal((rows, columns))).astype(np.float32)

    norm = np.ones(hidden, np.float32)
    file.add_tensor("token_embd.weight", matrix(vocabulary, hidden))
    file.add_tensor("output_norm.weight", norm)
    file.add_tensor("output.weight", matrix(vocabulary, hidden))
    for tensor in ("attn_q", "attn_k", "attn_v", "attn_output"):
        file.add_tensor(f"blk.0.{tensor}.weight", matrix(hidden, hidden))
    for tensor, rows, columns in (("ffn_gate", feed_forward, hidden), ("ffn_up", feed_forward, hidden), ("ffn_down", hidden, feed_forward)):
        file.add_tensor(f"blk.0.{tensor}.weight", matrix(rows, columns))
    file.add_tensor("blk.0.attn_norm.weight", norm)
    file.add_tensor("blk.0.ffn_norm.weight", norm)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
EOF
cat > load.py << 'EOF'
import sys

import llama_cpp

model = llama_cpp.Llama(sys.argv[1], n_ctx=32, verbose=True)
print("loaded", sys.argv[1], "by llama-cpp-python", llama_cpp.__version__)
EOF
venv/bin/python write.py
venv/bin/python load.py plain.gguf 2> log && status=0 || status=$?
test "$status" -eq 0
for name in phi3 phi-3; do
  venv/bin/python load.py $name.gguf > log 2>&1 && status=0 || status=$?
  grep "error loading model" log
  grep -q "_Map_base::at\|unordered_map::at" log
  test "$status" -eq 1
done
echo "as expected by this finding"
