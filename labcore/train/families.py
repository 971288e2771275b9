"""One small world for three families of models: numerals in Chinese and in English words.

All tokens share one table, so that BERT, T5 and GPT can be asked about the same things. BERT reads
`<cls> 十二 <sep> twelve <sep>` and fills in hidden tokens, or reads a numeral and says how many
digits it has; T5 turns a text into a text, the task named in front; GPT continues
`十二 = twelve <eos>`.
"""

import torch

from labcore.shapes import check_ids, require, whole
from labcore.train.corruption import IGNORED, cut_spans, random_spans
from labcore.train.numerals import DIGITS, SMALL, TENS, numeral, words

SENTINELS = ("<X>", "<Y>", "<Z>", "<W>")
TASKS = ("translate:", "digits:", "fill:")
SPECIAL = ("<pad>", "<bos>", "<eos>", "<cls>", "<sep>", "<mask>", "=")
TOKENS = (*SPECIAL, *SENTINELS, *TASKS, *DIGITS, *"十百千万", *SMALL, *TENS, "hundred", "thousand")
IDS = {token: i for i, token in enumerate(TOKENS)}
PAD, BOS, EOS, CLS, SEP, MASK, EQUALS = range(len(SPECIAL))
WORDS = range(IDS["零"], len(TOKENS))


def encode(rows):
    """Ids [n, T] of rows of tokens, padded on the right with `PAD`.

    >>> encode([["<bos>", "十", "二"], ["="]]).tolist()
    [[1, 24, 16], [6, 0, 0]]
    """
    for row in rows:
        require(not isinstance(row, str), "rows", repr(row), "rows of tokens", error=TypeError)
        unknown = [token for token in row if token not in IDS]
        require(not unknown, "rows", given=f"tokens {unknown}", allowed="tokens of TOKENS")
    longest = max(map(len, rows), default=0)
    padded = [[IDS[t] for t in row] + [PAD] * (longest - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.long).reshape(len(rows), longest)


def decode(ids):
    """Tokens of each row of ids [n, T], up to its first `EOS`, without padding and `BOS`.

    >>> decode(encode([["<bos>", "twelve", "<eos>", "one"]]))
    [['twelve']]
    """
    check_ids(ids, "ids", len(TOKENS), "B T")
    texts = []
    for row in ids.tolist():
        row = row[: row.index(EOS)] if EOS in row else row
        texts.append([TOKENS[i] for i in row if i not in (PAD, BOS)])
    return texts


def digits(number):
    """How many digits the number has.

    >>> digits(0), digits(123_000)
    (1, 6)
    """
    return len(str(whole("number", number, 0)))


def pairs(numbers):
    """`<cls> numeral <sep> words <sep>` of each number: ids [n, T] for a reader of both sides.

    >>> decode(pairs([12]))
    [['<cls>', '十', '二', '<sep>', 'twelve', '<sep>']]
    """
    rows = [["<cls>", *numeral(n), "<sep>", *words(n).split(), "<sep>"] for n in numbers]
    return encode(rows)


def questions(numbers):
    """(ids [n, T] of `<cls> numeral <sep>`, labels [n]: digits - 1), a task of classification."""
    ids = encode([["<cls>", *numeral(n), "<sep>"] for n in numbers])
    return ids, torch.tensor([digits(n) - 1 for n in numbers])


def sentences(numbers):
    """(ids [n, T] of `<bos> numeral = words <eos>`, labels): what GPT is trained on.

    Labels are the next token, `IGNORED` in the prompt and in the padding.

    >>> ids, labels = sentences([12])
    >>> decode(ids), labels.tolist()[0][-2:] == [IDS["twelve"], EOS]
    ([['十', '二', '=', 'twelve']], True)
    """
    rows = [["<bos>", *numeral(n), "=", *words(n).split(), "<eos>"] for n in numbers]
    ids = encode(rows)
    starts = torch.tensor([[len(numeral(n)) + 1] for n in numbers])
    inputs, labels = ids[:, :-1], ids[:, 1:].clone()
    labels[(torch.arange(labels.shape[1]) < starts) | (labels == PAD)] = IGNORED
    return inputs, labels


def texts(numbers, task, generator=None):
    """(source [n, S], target [n, T]) of one of T5's tasks; targets start with `BOS`.

    "translate:" asks for the words, "digits:" for the number of digits in a word, and "fill:" for
    the spans cut out of `numeral = words`.

    >>> source, target = texts([12], "digits:")
    >>> decode(source), decode(target)
    ([['digits:', '十', '二']], [['two']])
    """
    require(task in TASKS, "task", repr(task), ", ".join(map(repr, TASKS)))
    sources, targets = [], []
    for n in numbers:
        if task == "fill:":
            whole = [*numeral(n), "=", *words(n).split()]
            spans = random_spans(len(whole), density=0.25, mean_length=2.0, generator=generator)
            source, target = cut_spans(whole, spans[: len(SENTINELS) - 1], SENTINELS)
        else:
            source = numeral(n)
            target = words(n).split() if task == "translate:" else [SMALL[digits(n)]]
        sources.append([task, *source, "<eos>"])
        targets.append(["<bos>", *target, "<eos>"])
    return encode(sources), encode(targets)
