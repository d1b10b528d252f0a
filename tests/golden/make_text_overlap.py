"""Makes text_overlap/expected.json: BLEU and ROUGE of characters by nltk and rouge_chinese. For people; no test runs it.

    python make_text_overlap.py

Texts are drawn from Python's random. rouge_chinese raises an error for an empty text: then the scores are 0 here.
"""

import json
import pathlib
import random
import warnings
from importlib.metadata import version

from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_chinese import Rouge

HERE = pathlib.Path(__file__).resolve().parent
LETTERS = ["宽", "松", "的", "裤", "子", "。", "！", "？", "?", " ", "\n", "\t", "a", "b", ".", "…", "”", "’", "，", "\u3000", "é", "😀"]


def main():
    warnings.simplefilter("ignore")
    rng = random.Random(62)

    def text():
        pool = rng.choice([LETTERS, LETTERS[:4], LETTERS[3:], LETTERS[5:11] + LETTERS[:2]])
        return "".join(rng.choice(pool) for _ in range(rng.choice([0, 1, 2, 3, 4, 5, 8, 20, 60])))

    cases = []
    for _ in range(250):
        reference = text()
        given = rng.choice([text(), reference + text(), text() + reference, reference, text()])
        bleu = float(sentence_bleu([list(reference)], list(given), smoothing_function=SmoothingFunction().method3))
        try:
            all_scores = Rouge().get_scores(" ".join(given), " ".join(reference))[0]
            rouge = [all_scores[name]["f"] for name in ("rouge-1", "rouge-2", "rouge-l")]
        except ValueError:
            rouge = [0.0, 0.0, 0.0]
        cases.append(dict(text=given, reference=reference, bleu=bleu, rouge=rouge))
    folder = HERE / "text_overlap"
    folder.mkdir(exist_ok=True)
    (folder / "expected.json").write_text(json.dumps(cases, ensure_ascii=False, indent=0) + "\n")
    (HERE / "VERSIONS_text_overlap").write_text("".join(f"{name} {version(name)}\n" for name in ("nltk", "rouge-chinese")))


if __name__ == "__main__":
    main()
