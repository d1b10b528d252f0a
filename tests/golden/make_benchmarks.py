"""Benchmarks by lm-evaluation-harness: a tiny model with a tokenizer, documents in the files of each benchmark, and what lm-evaluation-harness
(lm-eval 0.4.13) measures on them with its own task definitions. Writes the folder `benchmarks`.

    pip install lm-eval torch transformers
    HF_HUB_OFFLINE=1 python make_benchmarks.py
"""

import csv
import importlib.util
import json
import math
import os
import random
import re
import shutil
import tempfile
from pathlib import Path

import lm_eval
import torch
from lm_eval.api.registry import get_filter
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent / "benchmarks"
MODEL, DATA = HERE / "model", HERE / "data"
TASKS = Path(lm_eval.__file__).parent / "tasks"
MAX_LENGTH, MAX_GEN_TOKS = 256, 12


def make_model():
    corpus = [
        "Question: Which of these is a mammal? The answer is a whale, and the others are fish.\nAnswer: whale\n",
        "Passage: the river flows into the sea. Is the sea larger than the river? yes or no, true or false.\n",
        "There are 12 eggs in a box. How many eggs are in 3 boxes? 3 * 12 = 36. #### 36\n",
        "def add(a, b):\n    return a + b\n",
        "下列说法正确的是 以下是中国关于注册会计师的单项选择题，请选出其中的正确答案。答案：\n",
    ]
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=352, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    MODEL.mkdir(parents=True)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(MODEL)
    torch.manual_seed(51)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=MAX_LENGTH, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, initializer_range=0.3,
    )
    LlamaForCausalLM(config).save_pretrained(MODEL)


def lines(path, records):
    path = DATA / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return records


def table(path, rows):
    path = DATA / path
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def splits():
    """The task definitions of lm-evaluation-harness, and documents as its datasets have them; writes the files as the benchmarks publish them."""
    all = {}
    boolq = [
        {"question": "is a whale a mammal", "passage": "Whales are mammals that live in the sea.", "answer": True},
        {"question": "is the moon made of cheese", "passage": "The moon is made of rock. ", "answer": False},
        {"question": "can birds swim", "passage": "Penguins are birds that swim.", "answer": True},
    ]
    train = [{"question": f"is {a} larger than {b}", "passage": f"We compare {a} and {b}.", "answer": a > b} for a in range(3) for b in range(10)]
    lines("boolq/dev.jsonl", boolq)
    lines("boolq/train.jsonl", train)
    label = lambda docs: [{**d, "label": int(d["answer"])} for d in docs]
    all["boolq"] = ("super_glue/boolq/default.yaml", {"validation": label(boolq), "train": label(train)}, 4)

    four = lambda n, k: [f"What is {n} + {i}?\nChoose one," + " " * (i % 2) for i in range(k)]
    rows = [[q, str(i), str(i + 7), f"{7 + i}, or more", 'none "of these"', "ABCD"[i % 4]] for i, q in enumerate(four(7, 4))]
    shots = [[q, str(i), str(i + 5), "5", "6", "BDAC"[i % 4]] for i, q in enumerate(four(5, 3))]
    table("mmlu/test/abstract_algebra_test.csv", rows)
    table("mmlu/dev/abstract_algebra_dev.csv", shots)
    mmlu = lambda docs: [{"question": d[0], "choices": d[1:5], "answer": "ABCD".index(d[5])} for d in docs]
    all["mmlu_abstract_algebra"] = ("mmlu/default/mmlu_abstract_algebra.yaml", {"test": mmlu(rows), "dev": mmlu(shots)}, 2)

    names = ["id", "question", "A", "B", "C", "D", "answer"]
    ceval = [["0", "下列说法正确的是____。", "会计", "审计", "税务", "法律", "B"], ["1", "注册会计师的答案是", "一", "二", "三", "四", "D"]]
    table("ceval/val/accountant_val.csv", [names] + ceval)
    table("ceval/dev/accountant_dev.csv", [names + ["explanation"]] + [r + ["因为，所以"] for r in ceval[::-1]])
    named = lambda docs: [dict(zip(names, d)) for d in docs]
    all["ceval-valid_accountant"] = ("ceval/ceval-valid_accountant.yaml", {"val": named(ceval), "dev": named(ceval[::-1])}, 1)

    agieval = lines("agieval/aqua-rat.jsonl", [
        {"passage": None, "question": "A train takes 3 hours for 60 km. Its speed is", "options": ["(A)10", "(B)20", "(C)30", "(D)60", "(E)180"],
            "label": "B"},
        {"passage": "", "question": "2 + 2 is", "options": ["(A)1", "(B)2", "(C)3", "(D)4", "(E)5"], "label": "D"},
    ])
    last = lambda d: "ABCDEFG"[len(d["options"]) - 1]
    english = lambda d: (
        (d["passage"] or "") + "Q: " + d["question"] + " Answer Choices: " + " ".join(d["options"]) + f"\nA: Among A through {last(d)}, the answer is"
    )
    chinese = lambda d: (d["passage"] or "") + "问题：" + d["question"] + " 选项：" + " ".join(d["options"]) + f"\n答案：从A到{last(d)}, 我们应选择"
    query = lambda docs, form: [{"query": form(d), "choices": d["options"], "gold": ["ABCDEFG".index(c) for c in d["label"]]} for d in docs]
    all["agieval_aqua_rat"] = ("agieval/aqua-rat.yaml", {"test": query(agieval, english)}, 0)
    physics = lines("agieval/gaokao-physics.jsonl", [
        {"passage": "已知：", "question": "下列正确的是", "options": ["(A)会计", "(B)审计师", "(C)税", "(D)法"], "label": ["A", "C"]},
        {"passage": None, "question": "以下错误的是", "options": ["(A)一", "(B)二", "(C)三", "(D)四"], "label": "D"},
    ])
    all["agieval_gaokao_physics"] = ("agieval/gaokao-physics.yaml", {"test": query(physics, chinese)}, 0)

    math = lines("agieval/math.jsonl", [
        {"passage": None, "question": "What is $\\frac{1}{4}$ of 8?", "options": None, "label": None, "answer": "2"},
        {"passage": None, "question": "Solve $2x=1$.", "options": None, "label": None, "answer": "\\frac12"},
    ])
    as_query = lambda docs, form: [{"query": (d["passage"] or "") + form(d["question"]), "answer": d["answer"]} for d in docs]
    all["agieval_math"] = ("agieval/math.yaml", {"test": as_query(math, lambda q: f"Q: {q}\nA: The answer is")}, 0)
    cloze = lines("agieval/gaokao-mathcloze.jsonl", [{"passage": "已知：", "question": "答案是____。", "options": None, "label": None, "answer": "$x=\\sqrt3$"}])
    all["agieval_gaokao_mathcloze"] = ("agieval/gaokao-mathcloze.yaml", {"test": as_query(cloze, lambda q: f"问题：{q}\n答案：")}, 0)

    arc = lines("arc/ARC-Easy-test.jsonl", [
        {"id": "1", "question": "Which is a mammal?", "choices": {"text": ["a whale", "a shark", "an eel", "a crab"], "label": ["A", "B", "C", "D"]},
            "answerKey": "A"},
        {"id": "2", "question": "What flows into the sea?", "choices": {"text": ["a stone", "a river", "the moon"], "label": ["1", "2", "3"]},
            "answerKey": "2"},
    ])
    all["arc_easy"] = ("arc/arc_easy.yaml", {"test": arc, "validation": arc, "train": arc}, 0)
    book = lines("openbookqa/test.jsonl", [{"id": "1", "question_stem": "The sea is", "choices": {"text": ["large", "small", "dry", "a box"],
        "label": ["A", "B", "C", "D"]}, "answerKey": " A"}])
    all["openbookqa"] = ("openbookqa/openbookqa.yaml", {"test": book, "validation": book, "train": book}, 0)
    piqa = lines("piqa/valid.jsonl", [{"goal": "Open a box of eggs.", "sol1": "Lift the lid.", "sol2": "Throw it into the sea.", "label": 0},
        {"goal": "Dry the river ", "sol1": "One cannot", "sol2": " Wait", "label": 0}])
    all["piqa"] = ("piqa/piqa.yaml", {"validation": piqa, "train": piqa}, 0)
    wino = lines("winogrande/dev.jsonl", [
        {"sentence": "The whale ate the fish because _ was hungry.", "option1": "the whale", "option2": "the fish", "answer": "1"},
        {"sentence": "The box held the eggs, so _ was full.", "option1": "the sea", "option2": "the box", "answer": "2"},
    ])
    lines("winogrande/train_xl.jsonl", wino[::-1])
    all["winogrande"] = ("winogrande/default.yaml", {"validation": wino, "train": wino[::-1]}, 1)
    swag = lines("hellaswag/hellaswag_val.jsonl", [
        {"activity_label": "Removing eggs", "ctx_a": "A man opens a box. [header] Eggs", "ctx_b": "the Man", "endings": ["takes one. [title] Then",
            "swims  away.", "is a whale [step] .", "flows."], "label": 0},
        {"activity_label": "Swimming", "ctx_a": "A whale swims [title] It", "ctx_b": "", "endings": ["dives.", "reads a book.", "returns a + b.",
            "is made of cheese."], "label": 0},
    ])
    all["hellaswag"] = ("hellaswag/hellaswag.yaml", {"validation": swag, "train": swag}, 0)
    lambada = lines("lambada/test.jsonl", [{"text": "The river flows into the sea"}, {"text": "Whales are not fish, a whale is a mammal"}])
    all["lambada_openai"] = ("lambada/lambada_openai.yaml", {"test": lambada}, 0)

    truth = [
        {"question": "What flows into the sea?", "mc1_targets": {"choices": ["The river", "The moon is larger", "A box"], "labels": [1, 0, 0]},
            "mc2_targets": {"choices": ["The river", "A river flows", "The moon is larger", "A box"], "labels": [1, 1, 0, 0]}},
        {"question": " Is a 'whale' a fish? ", "mc1_targets": {"choices": ["It isn't", "It is"], "labels": [1, 0]},
            "mc2_targets": {"choices": ["It isn't", "No\n", " a \"whale\" is a mammal", "It is", "yes"], "labels": [1, 1, 1, 0, 0]}},
    ]
    truth.append({"question": "How many eggs?", "mc1_targets": {"choices": ["12", "会计", "3 * 12"], "labels": [1, 0, 0]},
        "mc2_targets": {"choices": ["36", "会计", "12"], "labels": [0, 1, 0]}})
    lines("truthfulqa/validation.jsonl", truth)
    for name in ("truthfulqa_mc1", "truthfulqa_mc2"):
        all[name] = (f"truthfulqa/{name}.yaml", {"validation": truth}, 0)

    draw = random.Random(7)
    words = ["the", "sea", "( a whale )", '" eggs "', "@-@", ",", ".", ";", "it 's", "= = River = =", "\n", "N", "1 @,@ 000", "a box of", "'  fish '",
        "[ 3 ]", "°"]
    wiki = lines("wikitext/test.jsonl", [{"page": " ".join(draw.choice(words) for _ in range(n))} for n in (300, 20)])
    all["wikitext"] = ("wikitext/wikitext.yaml", {"test": wiki, "validation": wiki, "train": wiki}, 0)

    gsm = lines("gsm8k/test.jsonl", [{"question": "There are 12 eggs in a box. How many are in 3 boxes?",
        "answer": "3 * 12 = <<3*12=36>>36\n#### 36"}, {"question": "What is 1,000 + 1?", "answer": "#### 1,001"}])
    train = lines("gsm8k/train.jsonl", [{"question": f"What is {i} + 1?", "answer": f"It is {i + 1}.\n#### {i + 1}"} for i in range(40)])
    all["gsm8k"] = ("gsm8k/gsm8k.yaml", {"test": gsm, "train": train}, 3)
    all["gsm8k_cot"] = ("gsm8k/gsm8k-cot.yaml", {"test": gsm, "train": train}, 1)
    bbh = [{"input": "not ( True ) and ( True ) is", "target": "False"}, {"input": "True or False is", "target": "True"}]
    path = DATA / "bbh/bbh/boolean_expressions.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"canary": "none", "examples": bbh}, indent=1))
    cot = load_yaml(TASKS / "bbh/cot_fewshot/boolean_expressions.yaml")
    shots = [f"Q: {s['input']}\nA: Let's think step by step.\n{s['target']}" for s in cot["fewshot_config"]["samples"]]
    path = DATA / "bbh/cot-prompts/boolean_expressions.txt"
    path.parent.mkdir(parents=True)
    path.write_text("A note.\n-----\n" + cot["description"] + "\n\n".join(shots) + "\n")
    all["bbh_cot_fewshot_boolean_expressions"] = ("bbh/cot_fewshot/boolean_expressions.yaml", {"test": bbh}, 1)
    all["bbh_fewshot_boolean_expressions"] = ("bbh/fewshot/boolean_expressions.yaml", {"test": bbh}, 3)
    return all


def evaluate(scratch):
    configs, tasks = {}, splits()
    for name, (yaml, docs, fewshot) in tasks.items():
        config = load_yaml(TASKS / yaml)
        for key in ("include", "tag"):
            config.pop(key, None)
        files = {}
        for split, records in docs.items():
            files[split] = f"{scratch}/{name}_{split}.json"
            Path(files[split]).write_text(json.dumps(records))
        config |= {"task": name, "dataset_path": "json", "dataset_name": None, "num_fewshot": fewshot, "dataset_kwargs": {"data_files": files,
            "cache_dir": scratch}}
        if config["output_type"] == "generate_until":
            config["generation_kwargs"] = {**config["generation_kwargs"], "max_gen_toks": MAX_GEN_TOKS}
        configs[name] = config
    model = HFLM(pretrained=str(MODEL), batch_size=1, device="cpu", dtype="float32", max_length=MAX_LENGTH)
    found = lm_eval.simple_evaluate(model=model, tasks=list(configs.values()), log_samples=True, bootstrap_iters=2)
    result = {}
    for name, (_, _, fewshot) in tasks.items():
        samples = {}
        for s in found["samples"][name]:
            responses = [r[0] for r in s["resps"]]
            samples[s["doc_id"]] = [[float(str(r[0])), str(r[1]) == "True"] if isinstance(r, (list, tuple)) else r for r in responses]
        metrics = {k: v for k, v in found["results"][name].items() if "," in k and not k.startswith("perplexity_stderr")}
        result[name] = {"num_fewshot": fewshot, "metrics": metrics, "resps": [samples[i] for i in sorted(samples)]}
        if name.startswith("truthfulqa"):  # longer than the model: its log-likelihoods do not depend on all of it
            result[name]["prompts"] = [s["arguments"][0][0] for s in sorted(found["samples"][name], key=lambda s: s["doc_id"])]
        print(name, metrics)
    return result


def wikitext103():
    """Megatron-LM's task WIKITEXT103 on a text of the task wikitext: windows of seq_length inputs, each `overlap` tokens after the last, of which all but
    the first count their last `overlap` targets; padding counts nothing."""
    from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

    text = json.loads((DATA / "wikitext/test.jsonl").read_text(encoding="utf-8").splitlines()[0])["page"]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(MODEL)
    model = LlamaForCausalLM.from_pretrained(MODEL).eval()
    words = len(text.strip().split(" "))
    runs = []
    for seq_length, overlap, with_bos in [(64, 32, True), (64, 64, True), (48, 5, False), (16, 1, True), (256, 100, True), (200, 200, False)]:
        tokens = tokenizer(wikitext_detokenizer({"page": text}), add_special_tokens=with_bos).input_ids
        total, counted, starts = 0.0, 0, range(0, len(tokens), overlap)
        for start in starts:
            window = tokens[start : start + seq_length + 1]
            real = len(window) - 1
            if real < 1 or start > 0 and real <= seq_length - overlap:
                continue
            with torch.no_grad():
                logits = model(torch.tensor([window[:-1]])).logits[0].double()
            losses = torch.nn.functional.cross_entropy(logits, torch.tensor(window[1:]), reduction="none")
            counts = losses if start == 0 else losses[seq_length - overlap :]
            total, counted = total + counts.sum().item(), counted + len(counts)
        assert counted == len(tokens) - 1
        loss, ratio = total / (len(tokens) - 1), (len(tokens) - 1) / (words - 1)
        ppl, adjusted = math.exp(min(20, loss)), math.exp(min(20, loss * ratio))
        line = f" validation results on WIKITEXT103 | avg loss: {loss:.4E} | ppl: {ppl:.4E} | adjusted ppl: {adjusted:.4E} | token ratio: {ratio} |"
        runs.append({"seq_length": seq_length, "overlapping_eval": overlap, "with_bos": with_bos, "original_tokens": words, "tokens": len(tokens), "loss": loss,
            "line": line})
    return runs


def filters():
    """What the regular expressions of the tasks find in texts."""
    texts = ["#### 36", "it is 5.\n#### -1,234.\nmore #### 7", "#### x #### 8", "The answer is 18.", "The answer is 18", "The answer is 5",
        "The answer is -7\n", "The answer is 1,5. The answer is 6.",
             "The answer is $5. The answer is -", "a $ 3 - 4 -$5 6,", "-", "$", "- 12-34", "no", "", "So the answer is False.",
                 "the answer is (A).\nThe rest", "the answer is ", "the answer is x",
             "the answer is \nthe answer is 9.!", "the answer is  答案。", "1.", "A. 5.\n", "x#### y#### 3.0", "$1,000.", "7,"]
    extract = lambda pattern, **how: get_filter("regex")(regex_pattern=pattern, **how).apply([[t] for t in texts], [{}] * len(texts))
    found = [extract(r"#### (\-?[0-9\.\,]+)"), extract(r"The answer is (\-?[0-9\.\,]+)."), extract(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1),
        extract(r"(?<=the answer is )(.*)(?=.)")]

    def as_number(text):
        for ignored in [",", r"\$", "(?s).*#### ", r"\.$"]:
            text = re.sub(ignored, "", text)
        return text.lower()

    return [[t, *(list(f[i])[0] for f in map(list, found)), as_number(t)] for i, t in enumerate(texts)]


def formulas():
    """What AGIEval's utils find in texts, and which texts they take for the same."""
    spec = importlib.util.spec_from_file_location("agieval_utils", TASKS / "agieval/utils.py")
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)
    texts = ["\\boxed{x=\\frac{1}{2}}", "a \\boxed{1} b \\boxed{ 2 }", "\\boxed 3", "\\boxed{open", "$x = 1$ and $y=2$\nso $z$", "cost $5", "$\\frac12$", "0.5", "1/2",
        "\\frac{1}{2}", "\\dfrac1{2}", "$\\tfrac{1}2$", "it is 3.5个", "3 个, 12.25。", "１２", "x=-3.", "k = 7\\n rest", "\\sqrt3", "$\\sqrt{3}$", "$\\sqrt$",
        "$\\frac$", "$\\frac1$", "$50\\%$", "$50$", "$.5$", "$90^\\circ$", "$90^{\\circ}$", "$90$", "$\\left(1,2\\right)$", "$(1, 2)$", "$(1,2)$", "$3\\text{ cm}$",
        "$3\\text{ m}\\text{ s}$", "3", "$-1/2$", "$-\\frac{1}{2}$", "$01/2$", "$a/b$", "$$", "none", "", "x", "$5 or 6$", "7_", "8-", "9)", "10²", "11±", "$xyz=4$", "4",
        "$αβ=4$", "1,000", "1000", "$1\\!000$", "$\\\\frac12$", "{.5}", "$ .5$", "$0.5$", "\\fbox{1}", "}\\boxed{a}{", "\\boxed{}", "$\\frac ab$", "$\\frac三四$", "$\\sqrt三$"]
    found = [[t, utils.parse_math_answer(t)] for t in texts]
    same = [[i, j] for i, a in enumerate(texts) for j, b in enumerate(texts) if utils.is_equiv(a, b)]
    return {"found": found, "same": same}


def samples():
    result = []
    for seed in (1234, 0, 4294967295):
        rnd = random.Random(seed)
        result += [[seed, [[n, k, rnd.sample(range(n), k)] for n, k in [(30, 4), (21, 5), (22, 5), (7473, 5), (100, 8), (500, 8), (3, 3), (1, 1)]]]]
    return result


if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    make_model()
    with tempfile.TemporaryDirectory() as scratch:
        expected = {"tasks": evaluate(scratch), "filters": filters(), "samples": samples(), "formulas": formulas(), "wikitext103": wikitext103()}
    (HERE / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=0))
    for name in ("chat_template.jinja", "generation_config.json"):
        if (MODEL / name).exists():
            os.remove(MODEL / name)
