"""Prints conversations as torchtune's tokenizers lay them out, with what is learned of them: the expected texts of tests/unit/front_ends/torchtune.cpp.

The tokenizers run as published, with a vocabulary of bytes in place of their own, and special tokens by their names. torchtune 0.6.1; its quantization package
is not needed for that and is replaced by nothing.
"""
import importlib.abc
import importlib.machinery
import json
import sys
import types


class nothing:
    def __init__(self, *_, **__):
        pass

    def __call__(self, function=None, *_, **__):
        return function


class empty_module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (nothing,), {})


class finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "torchao" else None

    def create_module(self, spec):
        module = empty_module(spec.name)
        module.__path__, module.__version__ = [], "0.7.0"
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, finder())

from torchtune.data import (AlpacaToMessages, ChatMLTemplate, GrammarErrorCorrectionTemplate, Message, QuestionAnswerTemplate)  # noqa: E402
from torchtune.models.gemma._tokenizer import GemmaTokenizer  # noqa: E402
from torchtune.models.llama2 import Llama2ChatTemplate  # noqa: E402
from torchtune.models.llama2._tokenizer import Llama2Tokenizer  # noqa: E402
from torchtune.models.llama3._tokenizer import LLAMA3_SPECIAL_TOKENS, Llama3Tokenizer  # noqa: E402
from torchtune.models.mistral import MistralChatTemplate  # noqa: E402
from torchtune.models.mistral._tokenizer import MistralTokenizer  # noqa: E402
from torchtune.models.phi3._tokenizer import PHI3_SPECIAL_TOKENS, Phi3MiniTokenizer  # noqa: E402
from torchtune.models.phi4._tokenizer import PHI4_SPECIAL_TOKENS, Phi4Tokenizer  # noqa: E402
from torchtune.models.qwen2._tokenizer import QWEN2_SPECIAL_TOKENS, Qwen2Tokenizer  # noqa: E402
from torchtune.models.qwen2_5._tokenizer import QWEN2_5_SPECIAL_TOKENS, Qwen2_5Tokenizer  # noqa: E402

special = {}


def made(kind, names, prompt, extra=()):
    """A tokenizer without files: bytes, and special tokens above them."""

    class of_bytes(kind):
        eos_id = bos_id = None

        def __init__(self):
            self.special_tokens = {name: 1000 + i for i, name in enumerate(list(names) + ["<s>", "</s>"])}
            special.clear()
            special.update({number: name for name, number in self.special_tokens.items()})
            self.max_seq_len, self.prompt_template = None, prompt
            self.bos_id, self.eos_id = self.special_tokens["<s>"], self.special_tokens["</s>"]
            for attribute, name in extra:
                setattr(self, attribute, self.special_tokens[name])

        def encode(self, text, add_bos=False, add_eos=False, trim_leading_whitespace=False):
            return list(text.encode())

    return of_bytes()


def shown(tokens):
    return "".join(special[t] if t >= 1000 else chr(t) for t in tokens)


llama3 = [("start_header_id", "<|start_header_id|>"), ("end_header_id", "<|end_header_id|>"), ("eot_id", "<|eot_id|>"), ("eom_id", "<|eom_id|>"),
          ("python_tag", "<|python_tag|>"), ("bos_id", "<|begin_of_text|>"), ("eos_id", "<|end_of_text|>")]
qwen = [("im_start_id", "<|im_start|>"), ("im_end_id", "<|im_end|>"), ("eos_id", "<|im_end|>")]
kinds = [
    ("llama3", Llama3Tokenizer, LLAMA3_SPECIAL_TOKENS, llama3, [None, GrammarErrorCorrectionTemplate()]),
    ("qwen2", Qwen2Tokenizer, QWEN2_SPECIAL_TOKENS, qwen, [None]),
    ("qwen2_5", Qwen2_5Tokenizer, QWEN2_5_SPECIAL_TOKENS, qwen, [None, QuestionAnswerTemplate()]),
    ("phi3", Phi3MiniTokenizer, PHI3_SPECIAL_TOKENS, [("eos_id", "<|endoftext|>")], [None]),
    ("phi4", Phi4Tokenizer, PHI4_SPECIAL_TOKENS, [("eos_id", "<|im_end|>")], [None]),
    ("llama2", Llama2Tokenizer, [], [], [None, Llama2ChatTemplate(), ChatMLTemplate()]),
    ("mistral", MistralTokenizer, [], [], [MistralChatTemplate()]),
    ("gemma", GemmaTokenizer, [], [], [None]),
]


def conversation(with_system):
    turns = [("user", "u"), ("assistant", "a"), ("user", "v"), ("assistant", "b")]
    return [Message(role=role, content=text, masked=role != "assistant") for role, text in ([("system", "S")] if with_system else []) + turns]


for name, kind, names, extra, prompts in kinds:
    for prompt in prompts:
        tokenizer = made(kind, names, prompt, extra)
        for with_system in (False, True):
            if with_system and isinstance(prompt, MistralChatTemplate):
                continue
            tokens, mask = tokenizer.tokenize_messages(conversation(with_system))
            print(json.dumps({"tokenizer": name, "prompt": type(prompt).__name__, "system": with_system, "text": shown(tokens),
                              "learned": shown([t for t, masked in zip(tokens, mask) if not masked])}))
print(json.dumps([[m.role, m.text_content] for m in AlpacaToMessages()({"instruction": "i", "input": "x", "output": "o"})["messages"]]))
