"""Beam search against `generate(num_beams=k)` of transformers, sequences and scores.

Theirs adds up in float32 whatever the model computes in, so scores agree to float32 and the
sequences exactly. Where the two define the same thing: penalty="power" is their length_penalty
(both divide by the number of generated tokens, EOS included); stop="count" is early_stopping=True;
stop="bound" is early_stopping="never", and early_stopping=False when the penalty is 0. With
early_stopping=False and a penalty theirs divides the running scores by the length so far, which is
no bound and has no counterpart here.
"""

import pytest
import torch

from labcore.decode import beam_search

B, T, Y, EOS, PAD, NEW = 3, 5, 11, 2, 0, 9
SAME = [
    ("never", "bound", 0.0),
    ("never", "bound", 0.7),
    ("never", "bound", 1.6),
    (True, "count", 0.0),
    (True, "count", 1.0),
    (False, "bound", 0.0),
]


@pytest.fixture(scope="module")
def models():
    """Six GPT-2s with random weights large enough for sharp and different distributions."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=Y, n_positions=T + NEW, n_embd=12, n_layer=2, n_head=4, n_inner=17,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=1, eos_token_id=EOS, pad_token_id=PAD,
    )  # fmt: skip
    made = []
    for seed in range(6):
        torch.manual_seed(seed)
        model = transformers.GPT2LMHeadModel(config).double().eval()
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.5)
        with torch.no_grad():  # EOS gets 2 more on every logit, so that texts end at many lengths
            eos = model.transformer.wte.weight[EOS]
            model.transformer.ln_f.bias.copy_(2 * eos / eos.square().sum())
        made.append(model)
    return made


def prompts(seed):
    """Ids [B, T] without EOS and padding."""
    return torch.randint(3, Y, (B, T), generator=torch.Generator().manual_seed(seed))


def generated(model, start, k, early, alpha):
    """Per prompt a list of (generated ids, value) of transformers, best first."""
    found = model.generate(
        start, attention_mask=torch.ones_like(start), num_beams=k, num_return_sequences=k,
        max_new_tokens=NEW, do_sample=False, early_stopping=early, length_penalty=alpha,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    rows = [cut(row[T:].tolist()) for row in found.sequences]
    values = found.sequences_scores.tolist()
    pairs = list(zip(rows, values, strict=True))
    return [pairs[b * k : (b + 1) * k] for b in range(len(start))]


def cut(ids):
    """Ids up to and with the first EOS: what stands behind it is padding."""
    return ids[: ids.index(EOS) + 1] if EOS in ids else ids


def ours(model, start, k, stop, alpha):
    @torch.no_grad()
    def score(ids):
        return model(ids).logits[:, -1]

    options = {"eos": EOS, "alpha": alpha, "penalty": "power", "stop": stop}
    return beam_search(score, start, beam=k, max_new_tokens=NEW, **options).hypotheses


@pytest.mark.parametrize(("early", "stop", "alpha"), SAME)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_equals_generate(models, k, early, stop, alpha):
    for seed, model in enumerate(models):
        start = prompts(seed)
        wanted = generated(model, start, k, early, alpha)
        for found, pairs in zip(ours(model, start, k, stop, alpha), wanted, strict=True):
            assert [h.ids for h in found] == [ids for ids, _ in pairs]
            assert [h.value for h in found] == pytest.approx([v for _, v in pairs], abs=2e-5)
            assert all(h.finished == (h.ids[-1] == EOS) for h in found)


def test_the_cases_are_not_all_alike(models):
    """What is compared has ends of many lengths and texts cut by the limit, and settings matter."""
    best, lengths, cut_off = {}, set(), 0
    for early, stop, alpha in SAME:
        found = [ours(model, prompts(s), 3, stop, alpha) for s, model in enumerate(models)]
        rows = [row for part in found for row in part]
        lengths |= {len(h.ids) for row in rows for h in row if h.finished}
        cut_off += sum(not h.finished for row in rows for h in row)
        best[early, alpha] = [[h.ids for h in row] for row in rows]
    assert len(lengths) >= 4 and cut_off > 0
    assert best["never", 0.0] == best[False, 0.0]
    assert best["never", 0.0] != best["never", 1.6]
    assert best["never", 0.0] != best[True, 0.0]


def test_one_beam_is_their_greedy_search(models):
    for seed, model in enumerate(models):
        start = prompts(seed)
        wanted = model.generate(
            start, attention_mask=torch.ones_like(start), max_new_tokens=NEW, do_sample=False
        )
        found = ours(model, start, 1, "count", 0.0)
        assert [row[0].ids for row in found] == [cut(row[T:].tolist()) for row in wanted]
