"""A real translation task: Chinese numerals into English number words.

十二万三千 → one hundred twenty three thousand. Chinese counts in steps of 10⁴ (万), English in
steps of 10³ (thousand): 十二万 and 三千 end up in one English group, so the alignment is not
monotone and attention over the source has something to show. Every numeral has exactly one right
translation, so that a decoder can be judged without a judge.

Conventions: numbers 0 … 999,999; 十 without 一 at the front only (十二, but 一百一十二); one 零
for a run of zeros inside; English without "and" and hyphens.
"""

from typing import NamedTuple

import torch

from labcore.shapes import check_ids, require, whole

LIMIT = 10**6
DIGITS = "零一二三四五六七八九"
_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
_SMALL += " fifteen sixteen seventeen eighteen nineteen"
SMALL = _SMALL.split()
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
PAD, BOS, EOS = 0, 1, 2
SPECIAL = ["<pad>", "<bos>", "<eos>"]
SOURCE = [*SPECIAL, *DIGITS, "十", "百", "千", "万"]
TARGET = [*SPECIAL, *SMALL, *TENS, "hundred", "thousand"]
_SOURCE_ID = {token: index for index, token in enumerate(SOURCE)}
_TARGET_ID = {token: index for index, token in enumerate(TARGET)}


class Numerals(NamedTuple):
    """Examples: the numbers [n], sources [n, S] (no BOS, EOS) and targets [n, T] (BOS … EOS)."""

    numbers: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor


def numeral(number):
    """The Chinese numeral of a whole number 0 … 999,999.

    >>> numeral(123_000), numeral(10_010), numeral(12), numeral(100_300)
    ('十二万三千', '一万零一十', '十二', '十万零三百')
    """
    _check_number(number)
    if number == 0:
        return DIGITS[0]
    high, low = divmod(number, 10**4)
    text = _section(high) + "万" if high else ""
    if low:
        text += (DIGITS[0] if high and low < 1000 else "") + _section(low)
    return text[1:] if text.startswith("一十") else text


def words(number):
    """The English words of a whole number 0 … 999,999, separated by spaces.

    >>> words(123_000), words(40_017)
    ('one hundred twenty three thousand', 'forty thousand seventeen')
    """
    _check_number(number)
    if number == 0:
        return SMALL[0]
    high, low = divmod(number, 1000)
    return " ".join(
        [*(_below_thousand(high) + ["thousand"] if high else []), *_below_thousand(low)]
    )


def encode_source(texts):
    """Ids [n, S] of numerals, one a character, padded on the right with `PAD`.

    >>> encode_source(["十二", "万"]).tolist()
    [[13, 5], [16, 0]]
    """
    _check_texts(texts)
    return _padded([[_id(_SOURCE_ID, c, "texts") for c in text] for text in texts])


def encode_target(texts):
    """Ids [n, T] of English words: BOS, the words, EOS, then padding.

    >>> encode_target(["twelve", "one hundred"]).tolist()
    [[1, 15, 2, 0], [1, 4, 31, 2]]
    """
    _check_texts(texts)
    rows = [[_id(_TARGET_ID, word, "texts") for word in text.split()] for text in texts]
    return _padded([[BOS, *row, EOS] for row in rows])


def decode_target(ids):
    """English texts of ids [n, T], each up to its first EOS; BOS and padding are left out.

    >>> decode_target(torch.tensor([[1, 15, 2, 7], [1, 4, 31, 2]]))
    ['twelve', 'one hundred']
    """
    check_ids(ids, "ids", len(TARGET), "B T")
    texts = []
    for row in ids.tolist():
        row = row[: row.index(EOS)] if EOS in row else row
        texts.append(" ".join(TARGET[token] for token in row if token not in (PAD, BOS)))
    return texts


def examples(numbers):
    """The `Numerals` of a list of numbers.

    >>> [list(part.shape) for part in examples([7, 123_000, 40_017])]
    [[3], [3, 6], [3, 7]]
    """
    numbers = numbers.tolist() if isinstance(numbers, torch.Tensor) else list(numbers)
    source = encode_source([numeral(number) for number in numbers])
    return Numerals(torch.tensor(numbers), source, encode_target([words(n) for n in numbers]))


def numerals(count=12_000, held_out=500, seed=0):
    """The pair (training, held-out) of `Numerals`: no number stands in both, or twice in one.

    A number's length, 1 to 6 digits, is drawn first and the number among those of this length
    second; drawn at large, nine in ten would have six digits. Repeats are dropped.

    >>> train, test = numerals(60, 11)
    >>> len(train.numbers), len(test.numbers)
    (60, 11)
    >>> set(train.numbers.tolist()) & set(test.numbers.tolist())
    set()
    """
    whole("count", count), whole("held_out", held_out), whole("seed", seed, 0)
    require(count + held_out <= LIMIT // 4, "count", count, f"at most {LIMIT // 4 - held_out} here")
    draw, found = torch.Generator().manual_seed(seed), {}
    while len(found) < count + held_out:
        digits = torch.randint(1, 7, (count + held_out,), generator=draw)
        share = torch.rand(count + held_out, generator=draw, dtype=torch.float64)
        low = torch.where(digits == 1, 0, 10 ** (digits - 1))
        numbers = low + (share * (10**digits - low)).long()
        found.update(dict.fromkeys(numbers.tolist()))
    numbers = list(found)[: count + held_out]
    # The first draws hold most of the short numbers, so the two parts are cut after a shuffle.
    order = torch.randperm(len(numbers), generator=draw).tolist()
    numbers = [numbers[index] for index in order]
    return examples(numbers[held_out:]), examples(numbers[:held_out])


def exact_match(ids, target):
    """Share of rows whose text up to EOS is the target's: every word right, none too many.

    A row without EOS is wrong, however right its words are.

    >>> target = torch.tensor([[1, 15, 2, 0], [1, 4, 31, 2]])
    >>> exact_match(torch.tensor([[1, 15, 2], [1, 4, 2]]), target)
    0.5
    """
    check_ids(ids, "ids", None, "B T"), check_ids(target, "target", None, "B T")
    require(len(ids) == len(target), "ids", f"{len(ids)} rows", f"{len(target)} rows")
    require(len(target) > 0, "target", "no rows", "at least one row")
    right = 0
    for row, wanted in zip(ids.tolist(), target.tolist(), strict=True):
        require(EOS in wanted, "target", "a row without EOS", "texts that end in EOS")
        wanted = wanted[: wanted.index(EOS) + 1]
        right += row[: len(wanted)] == wanted
    return right / len(target)


def _section(number):
    """The numeral of 1 … 9,999 with 一 before every 十."""
    text, gap = "", False
    for power, unit in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = number // power % 10
        if digit:
            text += (DIGITS[0] if gap and text else "") + DIGITS[digit] + unit
        gap = digit == 0
    return text


def _below_thousand(number):
    """The English words of 0 … 999 as a list, none for 0."""
    hundreds, rest = divmod(number, 100)
    found = [SMALL[hundreds], "hundred"] if hundreds else []
    if rest >= 20:
        found.append(TENS[rest // 10 - 2])
        rest %= 10
    return found + [SMALL[rest]] if rest else found


def _padded(rows):
    longest = max(map(len, rows), default=0)
    padded = [row + [PAD] * (longest - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.long).reshape(len(rows), longest)


def _id(table, token, name):
    require(token in table, name, repr(token), "tokens of the vocabulary")
    return table[token]


def _check_number(number):
    inside = whole("number", number, 0) < LIMIT
    require(inside, "number", number, f"a whole number 0 to {LIMIT - 1}")


def _check_texts(texts):
    one = isinstance(texts, str) or not all(isinstance(text, str) for text in texts)
    require(not one, "texts", repr(texts)[:40], "a list of texts", error=TypeError)
