"""Makes preferences/cases.json: records of preference sets and the tokens that trl makes of them (extract_prompt, _tokenize, common_prefix_length: what
DPOTrainer's tokenize_fn calls).

    python make_preferences.py FOLDER

FOLDER holds public tokenizers (gpt2, qwen2) and instruct/llamafactory/dpo_en_demo.json: tokenizers in FOLDER/tokenizers. Tests that read the cases need
the same tokenizers, and are skipped without them.
"""

import json
import pathlib
import sys

import transformers
import trl
from trl.data_utils import _tokenize, common_prefix_length, extract_prompt, is_conversational

HERE = pathlib.Path(__file__).resolve().parent
GPT2 = [
    {'prompt': 'The sky is', 'chosen': ' blue.', 'rejected': ' green, and\nso on.'},
    {'prompt': 'Q: What is é?\nA:', 'chosen': ' An accent on e: "é".', 'rejected': ' I do not know 你好'},
    {'chosen': 'Human: Is it so?\n\nAssistant: Yes, it is.', 'rejected': 'Human: Is it so?\n\nAssistant: Yes it may be.'},
]
QWEN2 = [
    {'prompt': [{'role': 'user', 'content': 'Name a colour.'}], 'chosen': [{'role': 'assistant', 'content': 'Blue.'}], 'rejected': [{'role': 'assistant', 'content': 'Seven, or eight?'}]},
    {'chosen': [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello'}, {'role': 'user', 'content': 'More'}, {'role': 'assistant', 'content': 'No.'}],
     'rejected': [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello'}, {'role': 'user', 'content': 'More'}, {'role': 'assistant', 'content': 'Well, as an assistant I say: no!'}]},
]


def tokenized(record, tokenizer):
    record = dict(record)
    if 'prompt' not in record:
        record.update(extract_prompt(record))
    if not is_conversational(record):
        for name in ('chosen', 'rejected'):
            record[name] += tokenizer.eos_token
        prompt = _tokenize(tokenizer, record['prompt'])['input_ids']
        both = [_tokenize(tokenizer, record['prompt'] + record[name])['input_ids'] for name in ('chosen', 'rejected')]
    else:
        prompt = _tokenize(tokenizer, record['prompt'], add_generation_prompt=True)['input_ids']
        both = [_tokenize(tokenizer, record['prompt'] + record[name])['input_ids'] for name in ('chosen', 'rejected')]
    length = min(common_prefix_length(prompt, ids) for ids in both)
    return {'prompt_length': length, 'chosen': list(both[0]), 'rejected': list(both[1])}


def sharegpt(record):
    role = {'human': 'user', 'gpt': 'assistant', 'system': 'system'}
    message = lambda m: {'role': role[m['from']], 'content': m['value']}
    return {'prompt': [message(m) for m in record['conversations']], 'chosen': [message(record['chosen'])], 'rejected': [message(record['rejected'])]}


def main():
    folder = pathlib.Path(sys.argv[1])
    gpt2 = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / 'tokenizers/gpt2/tokenizer.json'), eos_token='<|endoftext|>')
    qwen2 = transformers.AutoTokenizer.from_pretrained(str(folder / 'tokenizers/qwen2'))
    demo = sorted(json.load(open(folder / 'instruct/llamafactory/dpo_en_demo.json')), key=lambda r: len(json.dumps(r)))[:2]
    cases = [{'tokenizer': 'gpt2', 'record': r, **tokenized(r, gpt2)} for r in GPT2]
    cases += [{'tokenizer': 'qwen2', 'record': r, **tokenized(r, qwen2)} for r in QWEN2]
    cases += [{'tokenizer': 'qwen2', 'record': r, **tokenized(sharegpt(r), qwen2)} for r in demo]
    out = HERE / 'preferences'
    out.mkdir(exist_ok=True)
    (out / 'cases.json').write_text(json.dumps(cases, ensure_ascii=True, indent=0, separators=(',', ':')).replace(',\n', ',') + '\n')
    (HERE / 'VERSIONS_preferences').write_text(f'transformers {transformers.__version__}\ntrl {trl.__version__}\n')


main()
