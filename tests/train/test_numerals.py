"""The translation task: both readings of a number against independent ones, and fair parts."""

import random

import pytest
import torch

from labcore.train import numerals as task

# Every boundary, and a fair sample of the rest.
NUMBERS = sorted(
    {*range(0, 20_000, 7), *range(2_000)}
    | {10**e + d for e in range(1, 6) for d in (-1, 0, 1, 9, 10, 11, 19, 20, 99, 100, 101)}
    | {999_999, 100_000, 110_000, 123_000, 500_005, 900_090}
    | set(random.Random(0).sample(range(10**6), 20_000))
)


def test_numerals_agree_with_cn2an():
    cn2an = pytest.importorskip("cn2an")
    for number in NUMBERS:
        assert task.numeral(number) == cn2an.an2cn(str(number)), number
        assert cn2an.cn2an(task.numeral(number), "strict") == number


def test_words_agree_with_num2words():
    num2words = pytest.importorskip("num2words").num2words
    for number in NUMBERS:
        wanted = num2words(number).replace("-", " ").replace(",", "").replace(" and ", " ")
        assert task.words(number) == wanted, number


def test_known_readings():
    for number, chinese, english in [
        (0, "零", "zero"),
        (10, "十", "ten"),
        (12, "十二", "twelve"),
        (110, "一百一十", "one hundred ten"),
        (1_001, "一千零一", "one thousand one"),
        (10_010, "一万零一十", "ten thousand ten"),
        (20_300, "二万零三百", "twenty thousand three hundred"),
        (123_000, "十二万三千", "one hundred twenty three thousand"),
        (1_010, "一千零一十", "one thousand ten"),
        (999_999, "九十九万九千九百九十九", None),
    ]:
        assert task.numeral(number) == chinese
        assert english is None or task.words(number) == english


def test_readings_are_different_for_different_numbers():
    assert len({task.numeral(n) for n in NUMBERS}) == len(NUMBERS)
    assert len({task.words(n) for n in NUMBERS}) == len(NUMBERS)


def test_vocabularies_and_round_trip():
    assert len(task.SOURCE) == 17 == len(set(task.SOURCE))
    assert len(task.TARGET) == 33 == len(set(task.TARGET))
    found = task.examples(NUMBERS[::97])
    assert task.decode_target(found.target) == [task.words(n) for n in NUMBERS[::97]]
    chinese = ["".join(task.SOURCE[i] for i in row if i) for row in found.source.tolist()]
    assert chinese == [task.numeral(n) for n in NUMBERS[::97]]
    assert (found.target[:, 0] == task.BOS).all()
    assert ((found.target == task.EOS).sum(1) == 1).all()


def test_parts_do_not_overlap_and_have_all_lengths():
    train, test = task.numerals(3_000, 200)
    seen = train.numbers.tolist() + test.numbers.tolist()
    assert len(set(seen)) == 3_200
    assert {len(str(n)) for n in test.numbers.tolist()} >= {3, 4, 5, 6}
    again = task.numerals(3_000, 200)[1]
    assert torch.equal(again.numbers, test.numbers)
    assert not torch.equal(task.numerals(3_000, 200, seed=1)[1].numbers, test.numbers)


def test_exact_match_counts_ends():
    target = task.encode_target(["twelve", "one hundred"])
    assert task.exact_match(target, target) == 1
    assert task.exact_match(target[:, :3], target) == 0.5
    endless = target.clone()
    endless[0, 2] = 5
    assert task.exact_match(endless, target) == 0.5
    late = torch.cat([target, torch.full((2, 1), 9)], 1)
    assert task.exact_match(late, target) == 1


def test_bad_input():
    for number in (-1, 10**6, 1.0, True, "7"):
        with pytest.raises(ValueError, match="^number: got"):
            task.numeral(number)
        with pytest.raises(ValueError, match="^number: got"):
            task.words(number)
    with pytest.raises(ValueError, match="^texts: got 'x'; allowed: tokens of the vocabulary"):
        task.encode_source(["x"])
    with pytest.raises(ValueError, match="^count: got 0"):
        task.numerals(0)
    with pytest.raises(ValueError, match="^count: got 250000"):
        task.numerals(250_000)
    with pytest.raises(ValueError, match="^ids: got 1 rows"):
        task.exact_match(torch.zeros(1, 2).long(), torch.zeros(3, 2).long())
