"""Folders that xtrain wrote, loaded by transformers: no key unknown, no weight missing, and the logits that transformers had before.

    g++ -std=c++20 -O1 -I ../../include write_for_transformers.cpp -o write_for_transformers -lpthread
    python check_transformers.py ./write_for_transformers
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ["gpt2", "llama_tied", "llama_grouped_untied", "llama3_scaled", "llama_linear_scaled", "mistral", "qwen2", "gemma2", "bloom"]


def main():
    with tempfile.TemporaryDirectory() as written:
        subprocess.run([sys.argv[1], str(HERE), written, *NAMES], check=True)
        for name in NAMES:
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                pathlib.Path(written) / name, torch_dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
            problems = {key: value for key, value in report.items() if value}
            expected = load_file(HERE / name / "expected.safetensors")
            for t in (7, 33):
                with torch.no_grad():
                    logits = model(input_ids=expected[f"t{t}.inputs"].long()).logits
                difference = (logits - expected[f"t{t}.logits"]).abs().max().item()
                assert difference < 1e-5 and not problems, (name, t, difference, problems)
            print(f"{name}: loaded, largest difference of a logit {difference:.1e}")


if __name__ == "__main__":
    main()
