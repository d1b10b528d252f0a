#!/bin/sh
# transformers 5.24.0: LlamaTokenizer made from a tokenizer.model without byte pieces drops unknown characters.
#
# One would expect: a character that no piece covers becomes the unknown token, as sentencepiece itself and
#   transformers 4.57.6 have it.
# What happens: 5.24.0 gives no token at all for it, without an error or a warning: "ab" where the file has no piece for b
#   is the tokens of "a". 4.57.6 gives the unknown token on the same folder.
# What it means for a user: the same folder gives other tokens after an update, and text is lost from the training data
#   where a model has no byte pieces. Compare the tokens of both releases on text with rare characters.
# Seen on 2026-11-27.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export HF_HUB_OFFLINE=1
python3 -m venv "$dir/old"
python3 -m venv "$dir/new"
"$dir/old/bin/pip" -q install transformers==4.57.6 tokenizers==0.22.2 sentencepiece==0.2.3 protobuf==7.36.2
"$dir/new/bin/pip" -q install transformers==5.24.0 tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2
cd "$dir"
mkdir model
old/bin/python - << 'EOF'
from sentencepiece import sentencepiece_model_pb2 as pb

model = pb.ModelProto()
for text, kind, score in [("<unk>", 2, 0), ("<s>", 3, 0), ("</s>", 3, 0), ("\u2581a", 1, -1), ("\u2581", 1, -2), ("a", 1, -3)]:
    model.pieces.add(piece=text, type=kind, score=score)
model.trainer_spec.model_type = 2  # BPE
model.trainer_spec.byte_fallback = False
model.normalizer_spec.name = "x"
model.normalizer_spec.remove_extra_whitespaces = False
open("model/tokenizer.model", "wb").write(model.SerializeToString())
open("model/tokenizer_config.json", "w").write('{"tokenizer_class": "LlamaTokenizer", "legacy": false, "add_bos_token": false}')
EOF
cat > show.py << 'EOF'
import sys

import sentencepiece
import tokenizers
import transformers

print("transformers", transformers.__version__, "tokenizers", tokenizers.__version__, "sentencepiece", sentencepiece.__version__)
tokenizer = transformers.AutoTokenizer.from_pretrained("model")
print("class:", type(tokenizer).__name__)
texts = ["a", "ab", "abba", "a</s>b", "aéa"]
ids = {text: tokenizer(text)["input_ids"] for text in texts}
plain = sentencepiece.SentencePieceProcessor(model_file="model/tokenizer.model")
for text in texts:
    print(repr(text), ids[text], " sentencepiece alone:", plain.encode(text))
unknown = tokenizer.unk_token_id
counts = [ids[text].count(unknown) for text in texts]
print("unknown tokens:", counts)
assert unknown == 0
assert ids["a"] == [3]
if sys.argv[1] == "old":
    assert counts == [0, 1, 1, 1, 1], counts
else:
    assert counts == [0] * 5, counts
    assert ids["ab"] == [3] and ids["a</s>b"] == [3, 2]
EOF
old/bin/python show.py old
new/bin/python show.py new
echo "as expected by this finding"
