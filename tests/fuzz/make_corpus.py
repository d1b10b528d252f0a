# Writes the inputs that fuzzing begins with: good files, and one for each way we know in which a file lies.
# Names say what must become of them: valid-* is read, refused-* is refused. Run it in this folder; it changes no other file.
import json
import math
import os
import struct


def put(target, name, contents):
    folder = os.path.join("corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(contents if isinstance(contents, bytes) else contents.encode())


def tensors_file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


# JSON that is wrong whatever it is for
BAD_JSON = {
    "empty": b"",
    "one-brace": b"{",
    "nested": b'{"a":' + b"[" * 400 + b"]" * 400 + b"}",
    "invalid-utf8": b'{"a": "\xff\xfe"}',
    "cut-character": b'{"a": "\xe4\xbd"}',
    "lone-surrogate": b'{"a": "\\ud800"}',
    "number-beyond-range": b'{"a": 1e999}',
    "nan": b'{"a": NaN}',
    "zero-byte": b'{"a": 1}\0{"b": 2}',
    "two-documents": b"{} {}",
    "list": b"[1, 2]",
    "twice": b'{"a": 1, "a": 2}',
    "comment": b'{/* no */ "a": 1}',
}


def safetensors():
    good = {"a": entry("F32", [2], 0, 8)}
    two = {"__metadata__": {"format": "pt"}, "a": entry("F32", [2], 0, 8), "b": entry("BF16", [1, 3], 8, 14)}
    data = struct.pack("<2f", 1.5, -2.0)

    def t(name, header, contents=b"", length=None):
        put("safetensors", name, tensors_file(header, contents, length))

    t("valid-two", two, data + b"\x80\x3f" * 3)
    t("valid-scalar-and-empty", {"s": entry("F16", [], 0, 2), "e": entry("F64", [0, 5], 2, 2)}, b"\x00\x3c")
    t("valid-nothing", "{}")
    t("valid-not-finite", {"a": entry("F32", [3], 0, 12)}, struct.pack("<3f", float("nan"), float("inf"), float("-inf")))
    t("valid-integers", {"a": entry("I64", [1], 0, 8), "b": entry("BOOL", [1], 8, 9)}, b"\1" * 9)
    t("valid-narrow", {"a": entry("F4", [2], 0, 1), "b": entry("F6_E2M3", [4], 1, 4)}, b"1234")
    t("valid-spaces-behind", json.dumps(good) + "   ", data)
    put("safetensors", "refused-empty", b"")
    put("safetensors", "refused-seven-bytes", b"1234567")
    t("refused-no-header", "")
    t("refused-header-cut", good, data, 1000)
    t("refused-header-huge", good, data, 1 << 40)
    t("refused-header-overflows", good, data, (1 << 64) - 2)
    t("refused-data-cut", good, data[:4])
    t("refused-data-left-over", good, data + b"x")
    t("refused-overlap", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, data + b"1234")
    t("refused-hole", {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 8, 12)}, data + b"1234")
    t("refused-same-bytes-twice", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 0, 8)}, data)
    t("refused-dtype", {"a": entry("F99", [2], 0, 8)}, data)
    t("refused-dtype-number", {"a": {"dtype": 5, "shape": [2], "data_offsets": [0, 8]}}, data)
    t("refused-negative-dim", {"a": entry("F32", [-2], 0, 8)}, data)
    t("refused-fraction", {"a": entry("F32", [2.5], 0, 8)}, data)
    t("refused-shape-overflows", {"a": entry("F32", [1 << 32, 1 << 32, 1 << 32], 0, 8)}, data)
    t("refused-shape-wraps-to-right-size", {"a": entry("F32", [(1 << 62) + 2], 0, 8)}, data)
    t("refused-half-a-byte", {"a": entry("F4", [1], 0, 1)}, b"1")
    t("refused-offsets-backwards", {"a": entry("F32", [2], 8, 0)}, data)
    t("refused-one-offset", {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, data)
    t("refused-offset-beyond-64-bits", '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551624]}}', data)
    t("refused-no-offsets", {"a": {"dtype": "F32", "shape": [2]}}, data)
    t("refused-name-twice", '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', data)
    t("refused-metadata-number", {"__metadata__": {"a": 1}})
    t("refused-tensor-is-list", {"a": []})
    for name in ("nested", "invalid-utf8", "lone-surrogate", "nan", "list"):
        t("refused-json-" + name, BAD_JSON[name])
    put("safetensors", "valid-index", '{"metadata": {"total_size": 8}, "weight_map": {"a": "s", "b": "s"}}')
    put("safetensors", "refused-index-climbs", '{"weight_map": {"a": "../s"}}')
    put("safetensors", "refused-index-number", '{"weight_map": {"a": 1}}')
    put("safetensors", "refused-index-other-tensor", '{"weight_map": {"c": "s"}}')
    put("safetensors", "refused-index-missing-file", '{"weight_map": {"a": "t"}}')
    put("safetensors", "refused-index-folder", '{"weight_map": {"a": "."}}')


def config():
    gpt2 = {"model_type": "gpt2", "vocab_size": 10, "n_embd": 4, "n_layer": 1, "n_head": 2, "n_positions": 6, "eos_token_id": 9}
    llama = {"model_type": "llama", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4,
             "num_key_value_heads": 2, "intermediate_size": 12, "max_position_embeddings": 6, "rms_norm_eps": 1e-6,
             "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}, "eos_token_id": [1, 2], "bos_token_id": 1}
    glm = {"model_type": "chatglm", "hidden_size": 8, "num_layers": 1, "num_attention_heads": 2, "inner_hidden_size": 12, "vocab_size": 9,
           "max_sequence_length": 6, "position_encoding_2d": True, "bos_token_id": 8, "gmask_token_id": 7, "mask_token_id": 6, "eos_token_id": 5}
    bert = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 9,
            "max_position_embeddings": 6, "id2label": {"0": "no", "1": "yes", "2": "maybe"}}

    def c(name, base, **changes):
        put("config", name, json.dumps({k: v for k, v in {**base, **changes}.items() if v != "leave out"}))

    c("valid-gpt2", gpt2)
    c("valid-llama", llama)
    c("valid-llama-head-dim", llama, head_dim=6, rope_parameters=None, rope_scaling=None, rope_theta=1e6)
    c("valid-gpt2-nulls", gpt2, n_inner=None, eos_token_id=None, bos_token_id=None)
    c("refused-other-family", gpt2, model_type="bert")
    c("refused-family-number", gpt2, model_type=5)
    c("refused-no-width", gpt2, n_embd="leave out")
    c("refused-zero-layers", gpt2, n_layer=0)
    c("refused-negative-heads", gpt2, n_head=-2)
    c("refused-fraction", gpt2, n_embd=4.5)
    c("refused-heads-do-not-divide", gpt2, n_head=3)
    c("refused-kv-heads-do-not-divide", llama, num_key_value_heads=3)
    c("refused-odd-head-dim", llama, head_dim=3)
    c("refused-beyond-64-bits", gpt2, vocab_size=1 << 70)
    c("refused-vocabulary-huge", gpt2, vocab_size=(1 << 64) - 1)
    c("refused-feed-forward-wraps", gpt2, n_embd=1 << 62, n_head=1)
    c("refused-product-wraps", llama, num_attention_heads=1 << 30, num_key_value_heads=1 << 30, hidden_size=1 << 30, head_dim=16,
      vocab_size=1, max_position_embeddings=1, intermediate_size=1)
    c("refused-layers-huge", gpt2, n_layer=2_000_000_000)
    c("refused-layers-many", gpt2, n_layer=1_000_000)
    c("refused-context-huge", llama, max_position_embeddings=1 << 30, head_dim=1 << 20)
    c("refused-dropout", gpt2, attn_pdrop=1.0)
    c("refused-epsilon", gpt2, layer_norm_epsilon=0)
    c("refused-rope-base", llama, rope_parameters={"rope_theta": -1.0})
    c("valid-scaled-rope", llama, rope_scaling={"type": "linear", "factor": 2.0}, rope_parameters=None)
    c("refused-yarn", llama, rope_scaling={"type": "yarn", "factor": 2.0}, rope_parameters=None)
    c("refused-rope-is-number", llama, rope_parameters=4)
    c("valid-biases", llama, attention_bias=True)
    c("refused-token-negative", gpt2, eos_token_id=-1)
    c("refused-token-beyond-31-bits", gpt2, eos_token_id=(1 << 64) - 1)
    c("refused-tokens-mixed", llama, eos_token_id=[1, "2"])
    c("refused-tied-is-number", gpt2, tie_word_embeddings=1)
    c("valid-chatglm1", glm)
    c("refused-chatglm1-quantized", glm, quantization_bit=4)
    c("refused-chatglm1-prefix", glm, pre_seq_len=128)
    c("refused-chatglm1-head-dim", glm, hidden_size=12)
    c("refused-chatglm1-one-position", glm, position_encoding_2d=False)
    c("valid-bert", bert)
    c("refused-bert-activation", bert, hidden_act="relu")
    c("refused-bert-decoder", bert, is_decoder=True)
    c("refused-bert-regression", bert, problem_type="regression")
    c("refused-bert-one-label", bert, id2label={"0": "only"})
    c("refused-bert-segments-huge", bert, type_vocab_size=1 << 40)
    c("refused-bert-relative", bert, position_embedding_type="relative_key")
    for name, text in BAD_JSON.items():
        put("config", "refused-json-" + name, text)


def folder_of(**files):
    parts = []
    for name, contents in files.items():
        parts.append(b"%% " + name.replace("__", ".").encode() + b"\n" + (contents if isinstance(contents, bytes) else contents.encode()))
    return b"\n".join(parts)


def tokenizer():
    def j(name, text="$bytes, \"th\": 256", merges='["t h"]', more="", cut='{"type": "ByteLevel", "add_prefix_space": false}', **files):
        contents = '{"pre_tokenizer": %s%s, "model": {"type": "BPE", "vocab": {%s}, "merges": %s}}' % (cut, more, text, merges)
        put("tokenizer", name, folder_of(tokenizer__json=contents, **files))

    def v(name, vocabulary, merges, **files):
        put("tokenizer", name, folder_of(vocab__json=vocabulary, merges__txt=merges, **files))

    end = ', "added_tokens": [{"id": 257, "content": "<|endoftext|>"}]'
    j("valid-json", more=end, tokenizer_config__json='{"eos_token": "<|endoftext|>", "add_bos_token": true}')
    j("valid-json-pairs", merges='[["t", "h"]]')
    j("valid-json-prefix-space", cut='{"type": "ByteLevel", "add_prefix_space": true}', more=end)
    j("valid-json-one-word", cut='{"type": "ByteLevel", "use_regex": false}', more=end)
    j("valid-json-added-inside-added", more=', "added_tokens": [{"id": 257, "content": "the"}, {"id": 258, "content": "the then"}]')
    v("valid-vocabulary", '{$bytes, "th": 256, "the": 257, "\u0120the": 258, "<|endoftext|>": 259}',
      "#version: 0.2\nt h\r\nth e\n\u0120 the\n", text="the<|endoftext|> the")
    v("valid-many-merges", '{$bytes, "aa": 256, "aaaa": 257}', "a a\naa aa\n", text="a" * 99)
    v("valid-invalid-utf8-text", "{$bytes}", "", text=b"\xff\xc3\x28\xed\xa0\x80\xf8\x88\0\x80\x80\x80 a")
    put("tokenizer", "refused-nothing", b"")
    j("refused-no-bytes", text='"a": 0')
    j("refused-no-vocabulary", text="")
    j("refused-merge-unknown", merges='["x y"]')
    j("refused-merge-alone", merges='["th"]')
    j("refused-merge-number", merges="[5]")
    j("refused-merges-object", merges="{}")
    j("refused-token-negative", text='$bytes, "th": -1')
    j("refused-token-huge", text='$bytes, "th": 99999999999999999999')
    j("refused-token-fraction", text='$bytes, "th": 256.5')
    j("refused-hole", text='$bytes, "th": 16777215')
    j("refused-token-twice", text='$bytes, "th": 97')
    j("refused-added-takes-a-token", more=', "added_tokens": [{"id": 97, "content": "<b>"}]')
    j("refused-added-hole", more=', "added_tokens": [{"id": 16777215, "content": "<b>"}]')
    j("refused-added-without-id", more=', "added_tokens": [{"content": "<b>"}]')
    j("refused-added-is-text", more=', "added_tokens": ["<b>"]')
    j("refused-normalizer", more=', "normalizer": {"type": "NFZ"}')
    j("refused-normalizer-member", more=', "normalizer": {"type": "NFC", "version": 2}')
    j("refused-pattern", cut='{"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": false}')
    j("refused-set-in-set", cut='{"type": "Split", "pattern": {"Regex": "[a[b]]"}, "behavior": "Isolated", "invert": false}')
    j("refused-behavior", cut='{"type": "Split", "pattern": {"String": "a"}, "behavior": "Kept", "invert": false}')
    j("refused-decoder", more=', "decoder": {"type": "Guess"}')
    j("refused-charsmap", more=', "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}')
    j("refused-template", more=', "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {}}')
    j("refused-cls-beyond", more=', "post_processor": {"type": "BertProcessing", "sep": ["a", 1], "cls": ["b", 9999]}')
    j("refused-dropout", more=', "model": {"type": "BPE", "dropout": 0.1, "vocab": {"a": 0}, "merges": []}')
    j("valid-normalizer", more=', "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, '
      '{"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": "\\\\s+"}, "content": " "}]}')
    j("valid-steps", cut='{"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Digits", '
      '"individual_digits": true}, {"type": "Split", "pattern": {"Regex": "(?=[A-Z])"}, "behavior": "MergedWithNext", "invert": false}, '
      '{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}',
      more=', "decoder": {"type": "ByteLevel"}, "post_processor": {"type": "RobertaProcessing", "sep": ["a", 1], "cls": ["b", 2]}')
    metaspace = '{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": true}'
    put("tokenizer", "valid-unigram", folder_of(
        tokenizer__json='{"pre_tokenizer": %s, "decoder": %s, "normalizer": {"type": "Nmt"}, "model": {"type": "Unigram", "unk_id": 0, '
        '"vocab": [["<unk>", 0], ["\u2581", -2], ["the", -3], ["t", -4], ["h", -4.5], ["<0xC3>", -9]]}}' % (metaspace, metaspace)))
    put("tokenizer", "valid-word-piece", folder_of(
        tokenizer__json='{"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece"}, '
        '"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[C]", "type_id": 0}}, {"Sequence": {"id": "A", '
        '"type_id": 0}}], "special_tokens": {"[C]": {"id": "[C]", "ids": [1], "tokens": ["[C]"]}}}, "added_tokens": [{"id": 1, "content": "[C]", '
        '"special": true, "lstrip": true}], "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "[C]": 1, "the": 2, "##n": 3}}}'))
    put("tokenizer", "valid-word-level", folder_of(
        tokenizer__json='{"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "the": 1}}}'))
    put("tokenizer", "valid-character-bpe", folder_of(
        tokenizer__json='{"normalizer": {"type": "Prepend", "prepend": "_"}, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, '
        '{"type": "Fuse"}, {"type": "Strip", "content": "_", "start": 1, "stop": 0}]}, "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true, '
        '"unk_token": "?", "vocab": {"?": 0, "_": 1, "t": 2, "h": 3, "th": 4, "<0xFF>": 5}, "merges": ["t h"]}}'))
    put("tokenizer", "valid-vocabulary-txt", folder_of(vocab__txt="[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n##n\nth\n"))
    put("tokenizer", "refused-vocabulary-txt", folder_of(vocab__txt="the\n##n\nth\n"))
    v("valid-added-tokens", "{$bytes}", "", added_tokens__json='{"<new>": 256}')
    v("refused-added-tokens", "{$bytes}", "", added_tokens__json='{"<new>": -1}')
    j("refused-cut-is-number", cut="5")
    put("tokenizer", "refused-json-is-list", folder_of(tokenizer__json="[]"))
    put("tokenizer", "refused-model-is-text", folder_of(tokenizer__json='{"model": "x"}'))
    v("refused-merge-line", "{$bytes}", "one\n")
    v("refused-merge-line-space", "{$bytes}", " \n")
    v("refused-vocabulary-cut", '{$bytes, "a', "")
    v("refused-vocabulary-list", "[]", "")
    v("refused-surrogate", '{$bytes, "\\udc00": 256}', "")
    for name in ("nested", "invalid-utf8", "number-beyond-range", "zero-byte", "twice"):
        put("tokenizer", "refused-json-" + name, folder_of(tokenizer__json=BAD_JSON[name]))
        put("tokenizer", "refused-special-" + name,
            folder_of(vocab__json="{$bytes}", merges__txt="", tokenizer_config__json=BAD_JSON[name]))


def tiktoken():
    def t(name, ranks, **more):
        put("tiktoken", name, folder_of(ranks=ranks, **more))

    t("valid-cl100k", "$bytes\ndGg= 256\ndGhl 257\n")
    t("valid-gpt2", "$bytes\ndGg= 256\ndGhl 257\n", family="gpt2", text="the<|endoftext|>the")
    t("valid-llama3", "$bytes\r\ndGg= 256\r\n", family="llama3", text="a<|begin_of_text|>")
    t("valid-qwen", "$bytes\n", family="qwen", text="e\u0301 <|im_start|>")
    t("refused-empty", "")
    t("refused-family", "$bytes\n", family="x")
    t("refused-no-bytes", "dGg= 256\n")
    t("refused-no-rank", "$bytes\ndGg=\n")
    t("refused-rank-negative", "$bytes\ndGg= -1\n")
    t("refused-rank-huge", "$bytes\ndGg= 99999999999999999999\n")
    t("refused-rank-hole", "$bytes\ndGg= 16777215\n")
    t("refused-rank-twice", "$bytes\ndGg= 97\n")
    t("refused-not-base64", "$bytes\nd!g= 256\n")
    t("refused-zero-byte", b"$bytes\ndGg= 25\x006\n")


def field(number, contents):
    """A length-delimited field of a protocol buffer message."""
    return varint(number << 3 | 2) + varint(len(contents)) + contents


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def sentencepiece():
    def piece(text, score, kind=1):
        text = text if isinstance(text, bytes) else text.encode()
        return field(1, field(1, text) + b"\x15" + struct.pack("<f", score) + b"\x18" + varint(kind))

    def model(pieces, kind=1, normalizer=field(1, b"identity")):
        trainer = b"\x18" + (kind if isinstance(kind, bytes) else varint(kind))  # 1: unigram, 2: bpe, 3: words, 4: characters
        return b"".join(pieces) + field(2, trainer) + field(3, normalizer)

    unknown, begin, end = piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("</s>", 0, 3)
    words = [piece("\u2581", -3), piece("t", -3), piece("h", -3), piece("e", -3), piece("th", -2), piece("\u2581the", -1)]
    byte_pieces = [piece("<0x%02X>" % b, 0, 6) for b in (0x0A, 0xC3, 0xBC)]

    def s(name, contents, **more):
        put("sentencepiece", name, folder_of(tokenizer__model=contents, **more))

    s("valid-unigram", model([unknown, begin, end] + words))
    s("valid-bpe", model([unknown, begin, end] + words, kind=2))
    s("valid-without-begin", model([unknown] + words))
    s("valid-text-invalid", model([unknown, begin, end] + words), text=b"\xff the\xc3 \xed\xa0\x80 the")
    marked = [piece("<tool>", 0, 4), piece("--", 0, 4), piece("then", -1, 5)]
    s("valid-user-defined", model([unknown, begin, end] + words + marked))
    s("valid-unused-bpe", model([unknown, begin, end] + words + marked, kind=2))
    s("valid-words", model([unknown] + words, kind=3))
    s("valid-characters", model([unknown] + words + marked, kind=4))
    s("valid-suffix", model([unknown, begin, end] + words, kind=b"\x01\xc0\x01\x01"))
    s("refused-score", model([unknown] + words + [piece("nan", float("nan"))]))
    s("refused-charsmap", model([unknown] + words, normalizer=field(2, b"\xff\xff\xff\x7fabc")))
    s("refused-few-bytes", model([unknown, begin, end] + byte_pieces + words, kind=2))
    s("refused-empty", b"")
    s("refused-text", b"not a model")
    s("refused-cut", model([unknown, begin, end] + words)[:40])
    s("refused-no-pieces", field(2, b"\x18\x01"))
    s("refused-no-unknown", model(words))
    s("refused-piece-twice", model([unknown, begin, end] + words + [piece("t", -3)]))
    s("refused-two-unknown", model([unknown, piece("<unk2>", 0, 2)] + words))
    s("refused-length-huge", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")


def dataset():
    def d(name, text):
        put("dataset", name, text)

    d("valid-labels", '{"text": "good fish", "input": "a second text that is long", "output": "yes"}\n{"text": "", "input": "x", "output": 3}\n')
    d("label-fraction", '{"text": "good", "input": "x", "output": 1.5}\n')
    d("valid-lines", '{"text": "one"}\n\n{"text": "two \\u00fc\\ud83d\\ude00", "more": [1, {"a": null}]}\r\n')
    d("valid-list", '[{"text": "one"}, {"text": "}],{\\"["}]')
    d("valid-mark", "\ufeff{\"text\": \"behind a byte order mark\"}")
    d("valid-alpaca", '{"instruction": "say", "input": "", "output": "a"}\n{"instruction": "say {input}", "input": "b", "output": "{input}"}')
    d("valid-alpaca-list", '[{"instruction": "say", "input": null, "output": "\\n|"},\n {"instruction": "", "output": "longer than a row can be"}]')
    d("valid-both", '{"text": "t", "instruction": "i", "output": "o"}')
    d("valid-no-answer", '{"instruction": "say", "output": ""}')
    d("refused-empty", "")
    d("refused-blank", " \n\n\t\n")
    d("refused-list-empty", "[]")
    d("refused-list-cut", '[{"text": "one"}')
    d("refused-list-comma", '[{"text": "one"},]')
    d("refused-list-no-comma", '[{"text": "one"} {"text": "two"}]')
    d("refused-list-behind", '[{"text": "one"}] x')
    d("refused-list-brace", "[}")
    d("refused-string-cut", '{"text": "one\\')
    d("refused-missing", '{"txt": "one"}')
    d("refused-number", '{"text": 1}')
    d("refused-record-is-text", '"text"')
    d("refused-record-is-list", '{"text": "one"}\n[1]')
    d("refused-answer-missing", '{"instruction": "say", "input": ""}')
    d("refused-input-number", '{"instruction": "say", "input": 5, "output": "x"}')
    d("refused-texts-empty", '{"other": ""}')
    for name in ("nested", "invalid-utf8", "cut-character", "lone-surrogate", "number-beyond-range", "nan", "zero-byte", "two-documents", "twice"):
        d("refused-json-" + name, BAD_JSON[name])


def preferences():
    def p(name, *records):
        put("preferences", name, "\n".join(r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records))

    user, yes, no = ({"role": role, "content": text} for role, text in (("user", "u\u00e9"), ("assistant", "yes"), ("assistant", "no")))
    p("valid-texts", {"prompt": "P:", "chosen": " yes", "rejected": " no"}, {"prompt": "", "chosen": "", "rejected": "no"})
    p("valid-implicit", {"chosen": "P: \u00e9 yes", "rejected": "P: \u00ea no"}, {"chosen": "ab", "rejected": "a"})
    p("valid-messages", {"prompt": [user], "chosen": [yes], "rejected": [no]}, {"chosen": [user, yes], "rejected": [user, no], "prompt": "u", "messages": [user, yes]})
    p("valid-sharegpt", {"conversations": [{"from": "human", "value": "u"}], "chosen": {"from": "gpt", "value": "yes"}, "rejected": {"from": "gpt", "value": "no"}})
    p("valid-instruction", {"system": "S", "instruction": "u", "input": "v", "history": [["a", "b"]], "chosen": "yes", "rejected": "no"})
    p("valid-v1", {"chosen_messages": [dict(user, loss_weight=0.0), dict(yes, content=[{"type": "text", "value": "yes"}])], "rejected_messages": [dict(user, loss_weight=0.0), no]})
    p("valid-paired", {"question": "u", "response_j": "yes", "response_k": "no"})
    p("valid-labels", {"prompt": "P:", "completion": " yes", "label": True}, {"prompt": "Q:", "completion": " no", "label": 0})
    p("valid-kto-tag", {"messages": [user, yes], "kto_tag": True}, {"instruction": "u", "output": "no", "kto_tag": False}, {"completion": [user, no], "label": False})
    p("refused-one-label", {"prompt": "P:", "completion": " yes", "label": True})
    p("refused-label", {"prompt": "P:", "completion": " yes", "label": 2}, {"prompt": "Q:", "completion": " no", "label": 0})
    p("refused-mixed", {"prompt": "P:", "completion": " yes", "label": True}, {"messages": [user, yes], "label": True})
    p("refused-no-rejected", {"prompt": "P:", "chosen": " yes"})
    p("refused-kinds", {"prompt": "P:", "chosen": " yes", "rejected": [no]})
    p("refused-number", {"prompt": "P:", "chosen": 1, "rejected": 2})
    p("refused-equal", {"chosen": "P: yes", "rejected": "P: yes"})
    p("refused-equal-messages", {"chosen": [user, yes], "rejected": [user, yes]})
    p("refused-beginning", {"chosen": [user], "rejected": [user, no]})
    p("refused-user", {"prompt": "P", "chosen": [user], "rejected": [dict(user, content="v")]})
    p("refused-no-prompt", {"chosen": [yes], "rejected": [no]})
    p("refused-empty-list", {"prompt": [], "chosen": [], "rejected": []})
    p("refused-empty-conversation", {"prompt": [], "chosen": [yes], "rejected": [no]})
    p("refused-history", {"instruction": "u", "history": ["a"], "chosen": "yes", "rejected": "no"})
    p("refused-one-message", {"messages": [yes], "label": True}, {"messages": [user, yes], "label": True})
    p("refused-list", "[1, 2]")
    for name in ("empty", "nested", "invalid-utf8", "lone-surrogate", "number-beyond-range", "twice"):
        p("refused-json-" + name, BAD_JSON[name].decode("latin-1"))


def indexed_dataset():
    sizes = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}

    def i(name, code=8, lengths=(3, 0, 4), tokens=(1, 2, 3, 4, 5, 6, 7), boundaries=(0, 2, 3), offsets=None, magic=b"MMIDIDX\0\0", version=1, counts=None, behind=b"",
          cut=0, vocabulary=199):
        size = sizes.get(code, 2)
        if offsets is None:
            offsets = [sum(lengths[:k]) * size for k in range(len(lengths))]
        counts = counts or (len(lengths), len(boundaries))
        index = magic + struct.pack("<QB", version, code) + struct.pack("<2Q", *counts) + struct.pack(f"<{len(lengths)}i", *lengths)
        index += struct.pack(f"<{len(offsets)}q", *offsets) + struct.pack(f"<{len(boundaries)}q", *boundaries) + behind
        index = index[:len(index) - cut]
        contents = b"".join(t.to_bytes(size, "little", signed=t < 0) for t in tokens)
        put("indexed_dataset", name, struct.pack("<HB", len(index), vocabulary) + index + contents)

    i("valid-u16")
    i("valid-u8", 1)
    i("valid-i16", 3)
    i("valid-i32", 4)
    i("valid-i64", 5)
    i("valid-labels", 4, tokens=(-100, -100, 3, 4, 5, 6, 7))
    i("valid-small-vocabulary", vocabulary=4)
    i("valid-empty", lengths=(), tokens=(), boundaries=(0,))
    i("valid-empty-document", boundaries=(0, 2, 2, 3))
    i("valid-no-document", boundaries=(0,))
    i("valid-short", lengths=(1,), tokens=(1,), boundaries=(0, 1))
    i("refused-float", 6)
    i("refused-float32", 7)
    i("refused-dtype", 9)
    i("refused-older", magic=b"TNTIDX\0\0\0")
    i("refused-magic", magic=b"MMIDIDX\0x")
    i("refused-version", version=2)
    i("refused-cut", cut=1)
    i("refused-cut-header", cut=40)
    i("refused-behind", behind=b"x")
    i("refused-modes", behind=b"\0\1\0")
    i("refused-sequences-huge", counts=(1 << 61, 3))
    i("refused-sequences-wrap", counts=((1 << 64) - 4, 3))
    i("refused-boundaries-huge", counts=(3, 1 << 61))
    i("refused-no-boundaries", boundaries=())
    i("refused-length-negative", lengths=(3, -1, 5))
    i("refused-length-huge", lengths=(3, 2147483647, 4))
    i("refused-offset-gap", offsets=(0, 6, 8))
    i("refused-offset-negative", offsets=(0, -6, 6))
    i("refused-offset-overlaps", offsets=(0, 4, 4))
    i("refused-bin-short", tokens=(1, 2, 3, 4, 5, 6))
    i("refused-bin-long", tokens=(1, 2, 3, 4, 5, 6, 7, 8))
    i("refused-first-document", boundaries=(1, 2, 3))
    i("refused-documents-backwards", boundaries=(0, 3, 2))
    i("refused-document-beyond", boundaries=(0, 2, 4))


def checkpoint():
    good = {"step": 2, "data": {"epoch": 0, "step": 2}, "loss_scale": {"scale": 65536.0, "growth_tracker": 2, "hysteresis_tracker": 2}, "updates": 2,
            "skipped": 0, "bad_in_a_row": 0, "seed": 42, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "seq_length": 2, "precision": "fp16_mixed", "optimizer": "adamw"}

    def c(name, **changes):
        put("checkpoint", name, json.dumps({k: v for k, v in {**good, **changes}.items() if v != "leave out"}))

    c("valid-state")
    c("valid-state-far", step=1 << 40, updates=1 << 40, skipped=7)
    c("refused-no-step", step="leave out")
    c("refused-step-negative", step=-1)
    c("refused-step-fraction", step=1.5)
    c("refused-step-last", step=(1 << 64) - 1)
    c("refused-updates-last", updates=(1 << 64) - 1)
    c("refused-data-number", data=5)
    c("refused-data-missing", data="leave out")
    c("refused-other-batch", micro_batch_size=2)
    c("refused-other-seed", seed=7)
    c("refused-other-precision", precision="fp32")
    c("refused-scale-zero", loss_scale={"scale": 0, "growth_tracker": 0, "hysteresis_tracker": 2})
    c("refused-scale-negative", loss_scale={"scale": -1.0, "growth_tracker": 0, "hysteresis_tracker": 2})
    c("refused-scale-text", loss_scale={"scale": "1", "growth_tracker": 0, "hysteresis_tracker": 2})
    c("refused-scale-list", loss_scale=[])
    # the weights and the optimizer state of the model that the target makes
    names = [("model.embed_tokens", [3, 2]), ("model.layers.0.self_attn.q_proj", [2, 2]), ("model.layers.0.self_attn.k_proj", [2, 2]),
             ("model.layers.0.self_attn.v_proj", [2, 2]), ("model.layers.0.self_attn.o_proj", [2, 2]),
             ("model.layers.0.mlp.gate_proj", [2, 2]), ("model.layers.0.mlp.up_proj", [2, 2]), ("model.layers.0.mlp.down_proj", [2, 2]),
             ("model.layers.0.input_layernorm", [2]), ("model.layers.0.post_attention_layernorm", [2]), ("model.norm", [2])]

    def tensors(prefixes, dtype, leave_out=None, shape_of_norm=None):
        width = {"F16": 2, "F32": 4}[dtype]
        header, at = {}, 0
        for prefix in prefixes:
            for name, shape in names:
                if name == leave_out:
                    continue
                shape = shape_of_norm if shape_of_norm and name == "model.norm" else shape
                size = width
                for dim in shape:
                    size *= dim
                header[prefix + name + ".weight"] = entry(dtype, shape, at, at + size)
                at += size
        return tensors_file(json.dumps(header, separators=(",", ":")), b"\x01" * at)

    put("checkpoint", "valid-weights", tensors([""], "F16"))
    put("checkpoint", "valid-weights-wide", tensors([""], "F32"))
    put("checkpoint", "refused-weights-one-missing", tensors([""], "F16", "model.norm"))
    put("checkpoint", "refused-weights-other-shape", tensors([""], "F16", None, [1, 2]))
    put("checkpoint", "refused-weights-cut", tensors([""], "F16")[:-1])
    for name in ("empty", "one-brace", "nested", "invalid-utf8", "number-beyond-range", "twice", "list"):
        put("checkpoint", "refused-json-" + name, BAD_JSON[name])


def adapter_config():
    good = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"], "bias": "none",
            "rank_pattern": {}, "modules_to_save": None}

    def a(name, **changes):
        put("adapter_config", name, json.dumps({k: v for k, v in {**good, **changes}.items() if v != "leave out"}))

    a("valid-plain")
    a("valid-saved-modules", modules_to_save=["norm"], lora_alpha="leave out")
    a("refused-other-type", peft_type="IA3")
    a("refused-no-rank", r="leave out")
    a("refused-rank-zero", r=0)
    a("refused-rank-negative", r=-2)
    a("refused-rank-huge", r=1 << 62)
    a("refused-rank-wraps", r=(1 << 63))
    a("refused-alpha-zero", lora_alpha=0)
    a("refused-alpha-text", lora_alpha="4")
    a("refused-dropout-one", lora_dropout=1.0)
    a("refused-no-targets", target_modules=[])
    a("valid-all-linear", target_modules="all-linear", exclude_modules=["k_proj"])
    a("valid-expression", target_modules=r"model\.layers\.\d+\.(mlp\.up|self_attn\.[qv])_proj", exclude_modules=r".*\.mlp\..*")
    a("refused-expression-cut", target_modules="model.(layers")
    a("refused-expression-looks-ahead", target_modules="(?!model.norm).*_proj")
    a("refused-expression-grows", target_modules="((((q{99}){99}){99}){99})_proj")
    a("refused-expression-matches-nothing", target_modules="q_proj")
    a("valid-expression-slow-elsewhere", target_modules="(([a-z_.]|[a-z0-9]*)*)*_proj")
    a("valid-layers", layers_to_transform=[0], layers_pattern="layers")
    a("valid-layer", layers_to_transform=0, layers_pattern="")
    a("refused-layer-beyond", layers_to_transform=[7])
    a("refused-layers-of-expression", target_modules=".*_proj", layers_to_transform=[0])
    a("refused-layers-pattern-alone", layers_pattern=["layers"])
    a("refused-excluded-all", exclude_modules=["q_proj", "v_proj"])
    a("valid-embedding", target_modules=["embed_tokens"])
    a("refused-embedding-dora", target_modules=["embed_tokens"], use_dora=True)
    a("refused-targets-number", target_modules=[1])
    a("refused-target-unknown", target_modules=["x_proj"])
    a("valid-patterns", rank_pattern={"q_proj": 4}, alpha_pattern={r"layers\.\d\..*v_proj": 1.5}, use_rslora=True)
    a("refused-pattern-unclear", rank_pattern={"q_proj": 4, ".*": 5})
    a("refused-pattern-zero", rank_pattern={"q_proj": 0})
    a("refused-pattern-huge", rank_pattern={"q_proj": 1 << 62})
    a("refused-pattern-number", rank_pattern=5)
    a("valid-biases", bias="all")
    a("valid-biases-of-adapted", bias="lora_only")
    a("refused-bias", bias="some")
    a("valid-dora", use_dora=True, fan_in_fan_out=True, ensure_weight_tying=False, key_of_the_future={"a": [1]})
    a("refused-dora-number", use_dora=1)
    a("refused-initial-weights", init_lora_weights="pissa")
    a("refused-feature", trainable_token_indices=[1])
    a("refused-empty-name", modules_to_save=[""])
    for name, text in BAD_JSON.items():
        put("adapter_config", "refused-json-" + name, text)


def prefix_folder():
    good = {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 3, "num_layers": 2, "token_dim": 2, "num_attention_heads": 1,
            "num_transformer_submodules": 1, "prefix_projection": False}

    def c(name, **changes):
        put("prefix_folder", name, json.dumps({k: v for k, v in {**good, **changes}.items() if v != "leave out"}))

    c("valid-plain")
    c("valid-projected", prefix_projection=True, encoder_hidden_size=4)
    c("valid-short", num_transformer_submodules=None, num_layers="leave out")
    c("refused-other-type", peft_type="PROMPT_TUNING")
    c("refused-two-submodules", num_transformer_submodules=2)
    c("refused-no-length", num_virtual_tokens="leave out")
    c("refused-length-zero", num_virtual_tokens=0)
    c("refused-length-huge", num_virtual_tokens=1 << 62)
    for name, bad in BAD_JSON.items():
        if bad.startswith(b"{"):
            put("prefix_folder", "refused-json-" + name, bad)

    at = "transformer.prefix_encoder."

    def w(name, own={}, **shapes):
        """Tensors of ones; the model has 2 layers with keys and values of 2 numbers each. own: what a model of ours leaves beside."""
        header, data = {}, b""
        for tensor, shape in own.items():
            count = math.prod(shape)
            header["prefix_encoder." + tensor] = entry("F32", list(shape), len(data), len(data) + 4 * count)
            data += struct.pack("<f", 1) * count
        for tensor, shape in shapes.items():
            count = math.prod(shape)
            header[at + tensor.replace("_", ".")] = entry("F32", list(shape), len(data), len(data) + 4 * count)
            data += struct.pack("<f", 1) * count
        put("prefix_folder", name, tensors_file(header, data))

    w("valid-weights", embedding_weight=(2, 8))
    network = {"embedding_weight": (2, 8), "trans_0_weight": (3, 8), "trans_0_bias": (3,), "trans_2_weight": (8, 3), "trans_2_bias": (8,)}
    w("valid-network", **network)
    own = {"embedding.weight": (2, 2), "inner.weight": (3, 2), "inner.bias": (3,), "0.weight": (4, 3), "0.bias": (4,), "1.weight": (4, 3),
           "1.bias": (4,)}
    w("valid-own-network", own, embedding_weight=(2, 8))
    w("refused-own-network-cut", {k: v for k, v in own.items() if k != "1.bias"}, embedding_weight=(2, 8))
    w("refused-own-network-unfit", {**own, "0.weight": (3, 4)}, embedding_weight=(2, 8))
    w("refused-own-network-huge", {"inner.weight": (1 << 40, 0)}, embedding_weight=(2, 8))
    w("refused-narrow", embedding_weight=(2, 7))
    w("refused-vector", embedding_weight=(8,))
    w("refused-no-places", embedding_weight=(0, 8))
    w("refused-half-a-network", **{k: v for k, v in network.items() if "trans_0" not in k})
    w("refused-network-unfit", **{**network, "trans_0_weight": (3, 7)})
    w("refused-network-narrow", **{**network, "trans_2_weight": (7, 3), "trans_2_bias": (7,)})
    w("refused-network-scalar", **{**network, "trans_2_weight": ()})
    w("refused-other-names", word_weight=(2, 8))


# Pickles, as operations that push values


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def whole(value):
    return b"J" + struct.pack("<i", value)


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


def dictionary(**members):
    return b"}(" + b"".join(text(key) + value for key, value in members.items()) + b"u"


def storage(kind="FloatStorage", key="0", count=6, *view):
    return tuple_of(text("storage"), b"ctorch\n" + kind.encode() + b"\n", text(key), text("cpu"), whole(count), *view) + b"Q"


def tensor(of, offset=0, shape=(2, 3), strides=(3, 1)):
    return (b"ctorch._utils\n_rebuild_tensor_v2\n" + tuple_of(of, whole(offset), tuple_of(*map(whole, shape)), tuple_of(*map(whole, strides)),
            b"\x89", b"ccollections\nOrderedDict\n)R") + b"R")


def program(operations):
    return b"\x80\x02" + operations + b"."


VALUES = {
    "valid-plain": dictionary(w=tensor(storage())),
    "valid-turned": dictionary(w=tensor(storage(), 0, (3, 2), (1, 3)), v=tensor(storage("LongStorage", "1", 8), 1, (2,), (3,))),
    "valid-tied": dictionary(a=tensor(storage()) + b"q\0", b=b"h\0"),
    "valid-model": dictionary(model=dictionary(w=tensor(storage())), step=whole(3)),
    "valid-list": b"](" + tensor(storage()) + tensor(storage(), 5, (), ()) + b"e",
    "valid-attributes": b"ccollections\nOrderedDict\n)R(" + text("w") + tensor(storage()) + b"u}(" + text("_metadata") + b"}ub",
    "valid-parameter": b"ctorch._utils\n_rebuild_parameter\n" + tuple_of(tensor(storage()), b"\x88", b"N") + b"R",
    "valid-typed-apart": b"ctorch._utils\n_rebuild_tensor_v3\n" + tuple_of(
        tuple_of(text("storage"), b"ctorch.storage\nUntypedStorage\n", text("0"), text("cpu"), whole(24)) + b"Q", whole(0), tuple_of(whole(3)),
        tuple_of(whole(1)), b"\x89", b"}", b"ctorch\nfloat8_e4m3fn\n") + b"R",
    "valid-nothing": b"}",
    "refused-system": b"cos\nsystem\n" + text("true") + b"\x85R",
    "refused-instance": b"(ios\nsystem\n",
    "refused-new-object": b"ccollections\nOrderedDict\n)\x81",
    "refused-beyond-storage": dictionary(w=tensor(storage(), 1)),
    "refused-stride-beyond": dictionary(w=tensor(storage(), 0, (2, 2), (1 << 30, 1))),
    "refused-shape-wraps": dictionary(w=tensor(storage(), 0, (1 << 30, 1 << 30, 1 << 30), (0, 0, 0))),
    "refused-expanded": dictionary(w=tensor(storage(), 0, (1 << 20, 6), (0, 1))),
    "refused-negative": dictionary(w=tensor(storage(), -1)),
    "refused-storage-short": dictionary(w=tensor(storage("DoubleStorage", "0", 6))),
    "refused-storage-missing": dictionary(w=tensor(storage("FloatStorage", "7", 6))),
    "refused-storage-type": dictionary(w=tensor(storage("float32", "0", 6))),
    "refused-itself": b"]q\0h\0a",
    "refused-laughs": b"}(" + text("w") + tensor(storage()) + b"uq\0" + b"".join(
        b"}(" + text("a") + b"h" + bytes([i]) + text("b") + b"h" + bytes([i]) + b"uq" + bytes([i + 1]) for i in range(40)),
    "refused-name-twice": dictionary(**{"a.b": tensor(storage()), "a": dictionary(b=tensor(storage()))}),
    "refused-two-values": b"NN",
    "refused-memo": b"j\xff\xff\xff\xff",
    "refused-memo-far": b"Nr\xff\xff\xff\x7f",
    "refused-text-long": b"X\xff\xff\xff\xff",
    "refused-mark": b"(N\x85",
}


def archive(entries, method=0):
    file, directory = b"", b""
    for name, contents in entries.items():
        sizes = struct.pack("<HHHIIIIHH", 45, 0, method, 0, 0, len(contents), len(contents), len(name), 0)
        directory += b"PK\1\2" + struct.pack("<H", 45) + sizes + b"\0" * 10 + struct.pack("<I", len(file)) + name.encode()
        file += b"PK\3\4" + sizes + name.encode() + contents
    end = struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), len(file), 0)
    return file + directory + b"PK\5\6" + end


def pickles():
    for name, value in VALUES.items():
        put("pickle", name, program(value))
    put("pickle", "refused-empty", b"")
    put("pickle", "refused-protocol", b"\x80\x04N.")
    put("pickle", "refused-no-protocol", b"N.")
    put("pickle", "refused-no-end", b"\x80\x02N")


def torch_file():
    value, six = dictionary(w=tensor(storage())), struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    entries = {"x/data.pkl": program(value), "x/byteorder": b"little", "x/data/0": six}
    good = archive(entries)
    put("torch_file", "valid-archive", good)
    put("torch_file", "valid-archive-comment", good[:-2] + b"\3\0abc")
    put("torch_file", "refused-cut", good[:-1])
    put("torch_file", "refused-compressed", archive(entries, 8))
    put("torch_file", "refused-big-endian", archive({**entries, "x/byteorder": b"big"}))
    put("torch_file", "refused-no-pickle", archive({"x/data/0": six}))
    put("torch_file", "refused-storage-missing", archive({"x/data.pkl": program(value)}))
    put("torch_file", "refused-program", archive({**entries, "x/constants.pkl": b""}))
    put("torch_file", "refused-directory-far", good[:-6] + b"\xff\xff\xff\x7f\0\0")
    put("torch_file", "refused-many-entries", good[:-12] + b"\xff\xff" + good[-10:])
    magic = program(b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")
    machine = program(b"}(" + text("little_endian") + b"\x88u")

    def legacy(name, of=value, keys=b"](" + text("0") + b"e", contents=struct.pack("<Q", 6) + six, protocol=b"M\xe9\x03"):
        put("torch_file", name, magic + program(protocol) + machine + program(of) + program(keys) + contents)

    legacy("valid-legacy")
    legacy("valid-legacy-view", tensor(storage("FloatStorage", "1", 6, tuple_of(text("0"), whole(2), whole(3))), 1, (2,), (1,)))
    legacy("refused-legacy-cut", contents=struct.pack("<Q", 6) + six[:-1])
    legacy("refused-legacy-count", contents=struct.pack("<Q", (1 << 62) + 6) + six)
    legacy("refused-legacy-left-over", contents=struct.pack("<Q", 6) + six + b"x")
    legacy("refused-legacy-unknown-key", keys=b"](" + text("1") + b"e")
    legacy("refused-legacy-no-storages", keys=b"]", contents=b"")
    legacy("refused-legacy-view-beyond", tensor(storage("FloatStorage", "1", 6, tuple_of(text("0"), whole(5), whole(3))), 1, (2,), (1,)))
    legacy("refused-legacy-protocol", protocol=b"K\1")


def model_file():
    def ints(*values):
        return struct.pack("<%di" % len(values), *values)

    def numbers(count):
        return struct.pack("<%df" % count, *range(count))

    llama = (4, 3, 1, 2, 1, 3, 2)
    count = 3 * 4 + (4 + 16 + 8 + 8 + 16 + 4 + 3 * 12) + 4
    put("model_file", "valid-llama2c", ints(*llama) + numbers(count + 4))
    put("model_file", "valid-llama2c-untied", ints(4, 3, 1, 2, 1, -3, 2) + numbers(count + 4 + 12))
    put("model_file", "valid-llama2c-v1", (b"24ka" + ints(1, *llama) + b"\1").ljust(256, b"\0") + numbers(count))
    put("model_file", "refused-llama2c-v2", (b"24ka" + ints(2, *llama) + b"\1").ljust(256, b"\0") + numbers(count))
    put("model_file", "refused-llama2c-cut", ints(*llama) + numbers(count + 3))
    put("model_file", "refused-llama2c-heads", ints(4, 3, 1, 4, 1, 3, 2) + numbers(count + 4))
    put("model_file", "refused-llama2c-layers", ints(4, 3, 1 << 20, 2, 1, 3, 2) + numbers(count + 4))
    put("model_file", "refused-llama2c-huge", ints(*[1 << 24] * 7) + numbers(8))
    put("model_file", "refused-text", "a text that is no model, and longer than a header")
    put("model_file", "refused-empty", b"")

    def llmc(name, first, contents, behind=b""):
        put("model_file", name, ints(*first).ljust(1024, b"\0") + behind + contents)

    gpt2 = (20240326, 3, 2, 3, 1, 1, 1, 128)
    count = 128 + 2 + (1 + 1 + 3 + 3 + 1 + 1 + 1 + 1 + 4 + 4 + 4 + 1) + 2
    llmc("valid-llmc", gpt2, numbers(count))
    llmc("valid-llmc-bf16", (20240326, 5, *gpt2[2:]), numbers(count)[: 2 * count])
    llmc("refused-llmc-version", (20240326, 4, *gpt2[2:]), numbers(count))
    llmc("refused-llmc-cut", gpt2, numbers(count - 1))
    llmc("refused-llmc-negative", (*gpt2[:4], -1, *gpt2[5:]), numbers(count))
    llmc("refused-llmc-rows", (*gpt2[:7], 2), numbers(count))
    llmc("refused-llmc-huge", (20240326, 3, *[0x7FFFFFFF] * 6), numbers(4))
    count = 2 * 6 + 2 + (2 + 4 + 4 + 4 + 2 + 4 + 3 * 2 * 3)
    older, newer = (20240803, 3, 2, 3, 1, 1, 1, 2, 1, 1024, 0, 500000, 1, 4, 3, 1), (20240803, 3, 2, 3, 1, 1, 1, 2, 1024, 1, 3, 1)
    fractions = struct.pack("<3f", 1.3, 1e-5, 5e5).ljust(1024, b"\0")
    llmc("valid-llama3-older", older, numbers(count))
    llmc("valid-llama3-newer", newer, numbers(count), fractions)
    llmc("refused-llama3-fraction-of-a-channel", older, numbers(count - 1))
    llmc("refused-llama3-epsilon", newer, numbers(count), struct.pack("<3f", 1.3, float("nan"), 5e5).ljust(1024, b"\0"))


def gguf():
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def value(key, kind, contents):
        return text(key) + struct.pack("<I", kind) + contents

    def word(key, number):
        return value(key, 4, struct.pack("<I", number))

    def place(name, dims, kind, offset):
        return text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, offset)

    def g(name, entries, tensors=(), data=b"", version=3, counts=None):
        head = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(entries)))) + b"".join(entries) + b"".join(tensors)
        put("gguf", name, (head + b"\0" * (-len(head) % 32) if tensors else head) + data)

    strings = value("t", 9, struct.pack("<IQ", 8, 2) + text("a") + text(""))
    scalars = [value("k%d" % kind, kind, b"\1".ljust(width, b"\0")) for kind, width in enumerate((1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8)) if kind not in (8, 9)]
    g("valid-nothing", [])
    g("valid-metadata", [*scalars, value("s", 8, text("text")), strings, value("n", 9, struct.pack("<IQ3h", 3, 3, 1, -2, 3)), value("e", 9, struct.pack("<IQ", 6, 0))])
    g("valid-tensors", [], [place("a", (2, 3), 0, 0), place("b", (), 30, 32), place("c", (32,), 8, 64), place("d", (0, 5), 0, 128)], bytes(range(24)) + bytes(8) + bytes(32) + bytes(64))
    for name, number, block, size in (("q4_1", 3, 32, 20), ("q5_0", 6, 32, 22), ("q2_k", 10, 256, 84), ("q3_k", 11, 256, 110), ("q4_k", 12, 256, 144), ("q5_k", 13, 256, 176),
                                      ("q6_k", 14, 256, 210), ("iq4_nl", 20, 32, 18), ("mxfp4", 39, 32, 17), ("iq4_xs", 23, 256, 136)):
        g("valid-" + name, [], [place("a", (block,), number, 0)], bytes(i % 251 for i in range(size)))
    llama = [value("general.architecture", 8, text("llama")), value("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)), word("llama.block_count", 1),
             word("llama.context_length", 4), word("llama.embedding_length", 2), word("llama.feed_forward_length", 3), word("llama.attention.head_count", 1)]
    names = [("token_embd", (2, 5)), ("output_norm", (2,)), ("blk.0.attn_norm", (2,)), ("blk.0.attn_q", (2, 2)), ("blk.0.attn_k", (2, 2)), ("blk.0.attn_v", (2, 2)),
             ("blk.0.attn_output", (2, 2)), ("blk.0.ffn_norm", (2,)), ("blk.0.ffn_gate", (2, 3)), ("blk.0.ffn_up", (2, 3)), ("blk.0.ffn_down", (3, 2))]
    tensors, at = [], 0
    for name, dims in names:
        tensors.append(place(name + ".weight", dims, 0, at))
        at += -(-4 * math.prod(dims) // 32) * 32
    g("valid-llama", llama, tensors, bytes(at))
    g("valid-llama-that-lies", [*llama[:2], word("llama.block_count", 4096), *llama[3:]], tensors, bytes(at))
    g("refused-cut", llama, tensors, bytes(at - 32))
    g("refused-longer", llama, tensors, bytes(at + 1))

    def adapter(name, architecture, matrices):  # of llama and internlm2 with one layer, two heads of two, one key head
        entries = [value(key, 8, text(of)) for key, of in (("general.architecture", architecture), ("general.type", "adapter"), ("adapter.type", "lora"))]
        places, end = [], 0
        for tensor, dims in matrices:
            places.append(place(tensor, dims, 0, end))
            end += -(-4 * math.prod(dims) // 32) * 32
        g(name, [*entries, value("adapter.lora.alpha", 6, struct.pack("<f", 8.0))], places, bytes(i % 61 for i in range(end)))

    def pair(tensor, inputs, outputs, rank=1):
        return [(tensor + ".weight.lora_a", (inputs, rank)), (tensor + ".weight.lora_b", (rank, outputs))]

    adapter("valid-adapter", "llama", pair("blk.0.attn_q", 4, 4) + pair("blk.0.attn_k", 4, 2, 2) + pair("blk.0.ffn_down", 6, 4) + pair("output", 4, 5))
    adapter("valid-adapter-of-an-embedding", "llama", [("token_embd.weight.lora_a", (1, 5)), ("token_embd.weight.lora_b", (1, 4))])
    adapter("valid-adapter-fused", "internlm2", pair("blk.0.attn_q", 4, 4) + pair("blk.0.attn_k", 4, 2) + pair("blk.0.attn_v", 4, 2))
    adapter("valid-adapter-that-lies", "llama", [("blk.0.attn_q.weight.lora_a", (4, 2)), ("blk.0.attn_q.weight.lora_b", (1, 4)), ("blk.7.attn_q.weight.lora_a", (4, 1))])
    put("gguf", "refused-empty", b"")
    put("gguf", "refused-magic", b"GGUF")
    g("refused-version-1", [], version=1)
    g("refused-big-endian", [], version=3 << 24)
    g("refused-many-tensors", [], counts=(1 << 60, 0))
    g("refused-many-entries", [], counts=(0, 1 << 60))
    g("refused-long-key", [struct.pack("<Q", 1 << 63) + bytes(20)])
    g("refused-long-string", [value("s", 8, struct.pack("<Q", 1 << 62))])
    g("refused-long-array", [value("s", 9, struct.pack("<IQ", 4, 1000))])
    g("refused-long-array-of-strings", [value("s", 9, struct.pack("<IQ", 8, 1 << 61))])
    g("refused-array-of-arrays", [value("s", 9, struct.pack("<IQIQ", 9, 1, 4, 0))])
    g("refused-value-type", [value("s", 13, bytes(8))])
    g("refused-flag", [value("s", 7, b"\2")])
    g("refused-twice", [word("a", 1), word("a", 1)])
    g("refused-alignment", [word("general.alignment", 0)])
    one = place("a", (2,), 0, 0)
    for name, second in (("twice", place("a", (2,), 0, 32)), ("overlap", place("b", (2,), 0, 0)), ("gap", place("b", (2,), 0, 64)), ("misaligned", place("b", (2,), 0, 36)),
                         ("dims", place("b", (1, 1, 1, 1, 2), 0, 32)), ("type", place("b", (2,), 4, 32)), ("blocks", place("b", (33,), 8, 32)),
                         ("huge", place("b", (1 << 40, 1 << 40), 0, 32)), ("far", place("b", (2,), 0, (1 << 64) - 32))):
        g("refused-tensor-" + name, [], [one, second], bytes(128))


def chat_template():
    def t(name, text, messages=None, tools=None):
        parts = {"template": text}
        if messages is not None:
            parts["messages"] = messages
        if tools is not None:
            parts["tools"] = tools
        put("chat_template", name, folder_of(**parts))

    def r(name, *records):
        put("chat_template", name, folder_of(records="\n".join(records)))

    chatml = ("{%- for m in messages %}\n{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>' }}\n{% endfor -%}\n"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
    t("valid-chatml", chatml)
    t("valid-marked", "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %}{{ eos_token }}{% endfor %}")
    t("valid-tools", "{% if tools is defined and tools %}{% for t in tools %}{{ t | tojson(indent=2) }}{% endfor %}{% endif %}", "[]",
      '[{"name": "f", "parameters": {"type": "object", "properties": {"\u00fc": [1, 2.5, null, true]}}}]')
    t("valid-macro", "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ m(1) }}{% call m(b=3, a=4) %}x{% endcall %}")
    t("valid-namespace", "{% set ns = namespace(a=[1], b=none) %}{% for x in range(5) if x is odd %}{% set ns.a = ns.a + [x] %}{% set ns.b = ns %}"
      "{{ loop.index ~ loop.last ~ loop.length }}{% if x > 2 %}{% break %}{% endif %}{% else %}none{% endfor %}{{ ns.a }}")
    t("valid-filters", "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | map('trim') | list | tojson }}"
      "{{ [3, 1, 2] | sort(reverse=true) | join(', ') }}{{ 'a b'.split(' ')[-1] | upper }}{{ {'b': 1, 'a': 2} | dictsort }}{{ '%05.1f|%-3s' % (2.25, 'x') }}")
    t("valid-slices", "{{ 'h\u00e9llo'[::-1] }}{{ messages[1:][0].content[:2] }}{{ (1, 2, 3)[-2:] }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 2 ** 10 }}{{ 1 < 2 < 3 }}")
    t("valid-layout", "  {# a #}\n {%- set x -%} a {%- endset +%}\n{% raw %}{{ }}{% endraw %}\n {%+ if x %}b{% elif y %}{% endif %}{% filter upper %}c{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}")
    t("valid-date", "{{ strftime_now('%d %b %Y') }}")
    t("refused-exception", "{{ raise_exception('no') }}")
    t("refused-undefined", "{{ a.b }}")
    t("refused-filter", "{{ a | shout }}")
    t("refused-open", "{% for m in messages %}")
    t("refused-include", "{% include 'x' %}")
    t("refused-recursive", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")
    t("refused-endless", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")
    t("refused-doubling", "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}")
    t("refused-sharing", "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}")
    t("refused-nested-lists", "{% set ns = namespace(l=[1]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}")
    t("refused-brackets", "{{ " + "(" * 1000 + "1" + ")" * 1000 + " }}")
    t("refused-chain", "{{ 1" + "+1" * 1000 + " }}")
    t("refused-range", "{{ range(9223372036854775807) }}")
    t("refused-overflow", "{{ 9223372036854775807 + 1 }}")
    t("refused-messages-text", chatml, '"text"')
    t("refused-messages-number", chatml, "[5]")
    t("refused-messages-json", chatml, "[")
    t("refused-tools-number", chatml, "[]", "18446744073709551615")
    r("valid-records-messages", '{"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]}')
    r("valid-records-conversations", '[{"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}], "system": "S", "tools": "[{\\"name\\": \\"f\\"}]"}]')
    r("valid-records-instruction", '{"instruction": "Human:u\\nAssistant:a\\nHuman:v\\nAssistant:", "output": "b"}', '{"instruction": "u", "input": "x", "output": "b"}')
    r("valid-records-moss", '{"meta_instruction": "S",\n "chat": {"turn_1": {"Human": "<|Human|>: u<eoh>\\n", "MOSS": "<|MOSS|>: a<eom>"}}}')
    r("refused-records-nothing", '{"text": "a"}')
    r("refused-records-no-answer", '{"messages": [{"role": "user", "content": "u"}]}')
    r("refused-records-turn-missing", '{"chat": {"turn_2": {"Human": "u", "MOSS": "a"}}}')
    r("refused-records-call", '{"conversations": [{"from": "function_call", "value": "{"}]}')
    r("refused-records-cut", '{"messages": [')


# What fuzz.schedule reads: maker, ranks, chunks, micro-batches, the sequences of each; then changes: what, rank, action, number
def schedule():
    def s(name, *numbers):
        put("schedule", name, " ".join(map(str, numbers)))

    drop, twice, swap, micro_batch, chunk, peer, peer_chunk, kind = range(8)
    for maker, name in enumerate(("gpipe", "one-forward-one-backward", "zero-bubble", "all-in-all-out", "interleaved", "fifo")):
        s(f"valid-{name}", maker, 2, 1 if maker < 3 else 2, 4, 1, 2, 3, 4)
    s("valid-one-rank", 3, 1, 3, 2, 1, 1)
    s("valid-swapped", 0, 1, 1, 2, 1, 1, swap, 0, 0, 1)
    s("valid-nothing-changed", 0, 2, 1, 1, 1, swap, 0, 0, 0)
    s("refused-empty")
    s("refused-no-ranks", 0, 0, 1, 1, 1)
    s("refused-no-rows", 0, 2, 1, 2, 1, 0)
    s("refused-many-rows", 0, 2, 1, 2, 1, 1 << 32)
    s("refused-does-not-divide", 4, 4, 2, 6, 1, 1, 1, 1, 1, 1)
    s("refused-ranks-huge", 0, (1 << 64) - 1, 1, 1, 1)
    s("refused-product-wraps", 3, 1 << 63, 2, 1, 1)
    for i, name in enumerate(("drop", "twice")):
        s(f"refused-{name}", 1, 3, 1, 4, 1, 1, 1, 1, i, 1, 5, 0)
    s("refused-swapped", 0, 2, 1, 2, 1, 1, swap, 1, 0, 1)
    s("refused-wait-for-ever", 0, 2, 1, 1, 1, swap, 0, 0, 2, swap, 0, 1, 2)
    for what, name in ((micro_batch, "micro-batch"), (chunk, "chunk"), (peer, "peer"), (peer_chunk, "peer-chunk"), (kind, "kind")):
        s(f"refused-{name}", 4, 2, 2, 2, 1, 1, what, 0, 1, 99)


def machine():
    good = {"name": "small", "fp32": 2e13, "bf16": 3e14, "memory_bandwidth": 2e12, "memory": 1 << 36, "devices_per_node": 8,
            "inside": {"bandwidth": 3e11, "latency": 3e-6}, "between": {"bandwidth": 2.5e10, "latency": 5e-6}, "launch": 3e-6}

    def c(name, **changes):
        put("machine", name, json.dumps({k: v for k, v in {**good, **changes}.items() if v != "leave out"}))

    c("valid-small")
    c("valid-alone", devices_per_node="leave out", inside="leave out", between="leave out", launch=None)
    c("valid-slow", fp32=1e-300, memory_bandwidth=1e-300)
    c("refused-misspelt", launhc=1)
    c("refused-misspelt-link", inside={"bandwith": 1})
    c("refused-no-memory", memory="leave out")
    c("refused-no-fp32", fp32=0)
    c("refused-negative", launch=-1)
    c("refused-no-devices", devices_per_node=0)
    c("refused-no-link", inside="leave out")
    c("refused-link-is-number", between=5)
    c("refused-share", matmul_share=1.5)
    c("refused-text", bf16="fast")
    for name, text in BAD_JSON.items():
        put("machine", "refused-json-" + name, text)


def run_log():
    def event(name, **members):
        return json.dumps({"event": name, **members}) + "\n"

    def step(i, **members):
        return event("step", **{"step": i, "epoch": 0.1 * i, "loss": 4 - 0.1 * i, "lr": 1e-3, "grad_norm": 1.5, "tokens": 512, "tokens_per_second": 2000.5,
                                "seconds": 0.25, "loss_scale": 1, "peak_memory": 97243144, "mfu": 0.4, **members})

    settings = {"recipe": {"precision": "fp32", "objective": "next_token", "device": "cpu <script>alert(1)</script>"},
                "model": {"model_type": "llama", "vocab_size": 257, "rope_scaling": {"factor": 2.0}, "eos_token_id": None},
                "settings": {"learning_rate": 0.003, "betas": [0.9, 0.999]}, "ranks": 2, "plan": {"weights": 1000, "stash": 3000}}
    begin = event("run", max_steps=6, first_step=0, parameters=100, trainable_parameters=100, global_batch_size=8, seq_length=64, unix_time=1795603403,
                  memory={"weights": 1000})
    steps = "".join(step(i) for i in range(1, 5))
    rank = event("rank", step=4, rank=0, seconds=0.2, waiting=0.1, tokens=256, peak_memory=5) + event("rank", step=4, rank=1, seconds=0.2, waiting=0.05, tokens=256, peak_memory=5)
    evaluation = event("evaluation", step=4, loss=3.5, perplexity=33.1, targets=100, seconds=1)
    end = event("end", step=6, stopped=0, seconds=3, skipped=1, peak_memory=4000, memory={"weights": 1000, "stash": 3000})
    whole = begin + event("settings", **settings) + steps + rank + evaluation + event("checkpoint", step=4, seconds=0.1, writers=2)
    put("run_log", "valid-whole", whole + event("skipped", step=5, in_a_row=1, overflow=0, reason="gradient of <b>") + step(6) + end)
    put("run_log", "valid-killed", (whole + step(5))[:-60])
    put("run_log", "valid-resumed", whole + step(5) + event("run", max_steps=9, first_step=3) + event("settings", settings={"learning_rate": 0.1}) + step(4) + step(5))
    put("run_log", "valid-begun-again", whole + begin + step(1))
    put("run_log", "valid-continued-line", begin + step(1)[:40] + step(2))
    put("run_log", "valid-only-begun", begin)
    put("run_log", "valid-statistics", step(1, **{"rewards/margins": 0.5, "<script>": -1e-30}) + step(2, loss=None, **{"rewards/margins": None}))
    put("run_log", "valid-huge", step(1, loss=1e300, grad_norm=1e308, lr=5e-324) + step(2, loss=-1e300, grad_norm=0) + step(1 << 53))
    put("run_log", "valid-junk-between", step(1) + "junk\n\0\n" + step(2) + "[" * 300 + "\n" + step(3))
    for name, text in BAD_JSON.items():
        put("run_log", "valid-json-" + name, step(1).encode() + text + b"\n" + step(2).encode())
        put("run_log", "refused-json-" + name, text)
    put("run_log", "refused-no-event", json.dumps({"text": "a data set"}) + "\n")
    put("run_log", "refused-other-events", event("other"))
    put("run_log", "refused-step-is-text", step(1, step="one"))
    put("run_log", "refused-loss-is-text", step(1, loss="two"))
    put("run_log", "refused-step-0", step(0))
    put("run_log", "refused-step-beyond-2-53", step((1 << 53) + 1))
    put("run_log", "refused-binary", bytes(range(256)) * 4)


def yaml():
    def y(name, text):
        put("yaml", name, text)

    y("valid-config", "model:\n  _component_: torchtune.models.llama2.llama2_7b\ntokenizer:\n  path: /tmp/a b/tokenizer.model  # a comment\n"
                      "seed: null\nshuffle: True\nlr: 3e-4\nbatch_size: 1_000\nfiles: [\n  a-00001.bin,\n  a-00002.bin\n]\nnumber: 00030\n")
    y("valid-scalars", "[~, null, yes, Off, tRue, 0x1F, -3, +4, .5, 1., 1e3, .inf, -.Inf, .nan, 1.2.3, '3', \"a\\nb\\u00e9\", 9223372036854775808, 1e999]\n")
    y("valid-nested", "- - 1\n  - [2, {a: b}]\n- x: {}\n  y: []\n- |\n  two\n  lines\n- >-\n  one\n  line\n")
    y("valid-alias", "a: &x {b: [1, 2]}\nc: *x\nd: [*x, *x]\n")
    y("valid-tags", "a: !!str 7\nb: !!int 7\nc: !!null x\nd: ! 7\n")
    y("valid-texts", "a: ' b '\nb: '-'\nc: 'd: e'\nd: 'f #g'\ne: \"\\t\\x01\\\"\"\nf: ''\ng: '*h'\n'': i\n'true': j\n")
    y("valid-empty", "")
    y("valid-comment", "# nothing\n")
    y("refused-zero-byte", b"a: 1\0b")
    y("refused-not-utf-8", b"a: '\xff\xff'\n")
    y("refused-utf-16", "a: 1\n".encode("utf-16"))
    y("refused-escaped-zero-byte", 'a: "\\x00"\n')
    y("refused-escape-of-a-byte", 'a: "b\\Nc"\n')
    y("refused-no-end-quote", 'a: "b\n')
    y("refused-key-twice", "a: 1\nb: 2\na: 3\n")
    y("refused-two-documents", "a: 1\n---\nb: 2\n")
    y("refused-cut", "a: 1\nb: [1, 2\n")
    y("refused-tag", "a: !custom 1\n")
    y("refused-merge-key", "x: &x {a: 1}\ny:\n  <<: *x\n")
    y("refused-key-is-list", "? [a, b]\n: 1\n")
    y("refused-alias-of-itself", "a: &x [*x]\n")
    y("refused-unknown-alias", "a: *x\n")
    y("refused-deep", "[" * 100 + "]" * 100)
    y("refused-open-deep", "[" * 4000)
    y("refused-many-aliases", "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nd: [*c, *c, *c]\n")
    y("refused-long-aliases", "a: &a " + "x" * 1000 + "\nb: [*a, *a, *a, *a, *a]\n")
    y("refused-long", "a" * 5000)


for write in (safetensors, config, tokenizer, tiktoken, sentencepiece, dataset, preferences, indexed_dataset, checkpoint, adapter_config, prefix_folder, pickles,
              torch_file, model_file, gguf, chat_template, schedule, machine, run_log, yaml):
    write()
