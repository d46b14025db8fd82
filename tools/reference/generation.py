"""Greedy and beam search of the reference."""

import sys

import torch

from .subject import fail, padded, random_rows, text_rows

LEAST_MARGIN = 0.002  # a greedy choice that leads by less is not recorded


def settings(subject, options):
    """Keyword arguments of generate(), and the same as case.json states them."""
    base = subject.model.generation_config
    stated = {"eos_token_id": base.eos_token_id, "max_new_tokens": options.max_new_tokens, "pad_token_id": subject.pad}
    if subject.kind == "seq2seq":
        stated["decoder_start_token_id"] = base.decoder_start_token_id or subject.config.decoder_start_token_id
    lists_and_ids = ("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids")
    lists_and_ids += ("suppress_tokens", "begin_suppress_tokens", "exponential_decay_length_penalty")
    numbers = ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens")
    numbers += ("repetition_penalty", "encoder_repetition_penalty")
    for name in lists_and_ids + numbers:
        value = getattr(base, name, None)
        if value is not None and not (name in numbers and value in (0, 1.0)):
            stated[name] = value
    return stated


def generate(subject, ids, mask, model=None, **more):
    """Greedy or beam search, with the lead of the best over the second-best choice at each step."""
    out = subject.fresh(model).generate(
        ids,
        attention_mask=mask,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **{"num_beams": 1, **more},
    )
    leads = []
    if more.get("num_beams", 1) == 1:
        for scores in out.scores:
            best = scores.topk(2, dim=-1).values
            leads.append((best[:, 0] - best[:, 1]).tolist())
    return out, leads


def row_margins(leads, length, row=0):
    """Leads of one row up to the end of its own output; a forced token has an infinite one."""
    return [step[row] for step in leads[:length]]


def new_tokens(sequence, start, eos):
    """What was generated, up to and including the end token."""
    ends = eos if isinstance(eos, list) else [eos]
    path = sequence[start:].tolist()
    return next((path[: i + 1] for i, token in enumerate(path) if token in ends), path)


def greedy_rows(subject, prompts, stated):
    """Each prompt alone: its output, and its margins."""
    found = []
    for prompt in prompts:
        out, leads = generate(subject, torch.tensor([prompt]), torch.ones(1, len(prompt), dtype=torch.long), **stated)
        path = new_tokens(out.sequences[0], len(prompt), stated["eos_token_id"])
        found.append((path, row_margins(leads, len(path))))
    return found


def certain(margins, limit):
    """How many steps all rows may take before one has a lead too small."""
    firsts = [next((i for i, lead in enumerate(row) if lead <= LEAST_MARGIN), limit) for row in margins]
    return min(firsts)


def greedy_causal(subject, options, given=None):
    """`greedy.*` of a decoder; `given` holds the prompts of a recorded case."""
    stated = settings(subject, options)
    best = None
    for attempt in range(12):
        if given:
            prompts = given
        elif options.prompts:
            prompts = text_rows(subject, options.prompts)
        else:
            prompts = random_rows(subject, options.prompt_lengths, options.seed + 100 + attempt)
        found = greedy_rows(subject, prompts, stated)
        steps = certain([margins for _, margins in found], stated["max_new_tokens"])
        if best is None or steps > best[0]:
            best = (steps, prompts, found)
        if steps == stated["max_new_tokens"] or given or options.prompts:
            break
    steps, prompts, found = best
    if steps < stated["max_new_tokens"] and not given:
        if steps == 0:
            fail("the first token of a greedy path is too close to call; use other prompts or another --seed")
        stated["max_new_tokens"] = steps
        found = greedy_rows(subject, prompts, stated)
    made = {}
    for index, (prompt, (path, _)) in enumerate(zip(prompts, found)):
        made[f"greedy.row{index}.prompt_ids"] = torch.tensor(prompt)
        made[f"greedy.row{index}.new_ids"] = torch.tensor(path)
    ids, mask = padded(prompts, subject.pad, left=True)
    sequences = generate(subject, ids, mask, **stated)[0].sequences
    same = all(
        new_tokens(row, ids.shape[1], stated["eos_token_id"]) == path for row, (path, _) in zip(sequences, found)
    )
    if same:
        made |= {"greedy.input_ids": ids, "greedy.attention_mask": mask, "greedy.sequences": sequences}
    margin = min((lead for _, margins in found for lead in margins), default=float("inf"))
    facts = {"generation": stated, "greedy_min_margin": margin, "greedy_batch_left_padded_equals_unpadded": same}
    return made, facts


def greedy_seq2seq(subject, inputs, options, given=False):
    """`greedy.sequences` of an encoder-decoder, from the right-padded sources."""
    stated = settings(subject, options)
    ids, mask = inputs["right.input_ids"], inputs["right.attention_mask"]
    for _ in range(2):
        out, leads = generate(subject, ids, mask, **stated)
        lengths = [len(new_tokens(row, 1, stated["eos_token_id"])) for row in out.sequences]
        margins = [row_margins(leads, length, row) for row, length in enumerate(lengths)]
        steps = certain(margins, stated["max_new_tokens"])
        if steps == stated["max_new_tokens"] or given:
            break
        if steps == 0:
            fail("the first token of a greedy path is too close to call; use other prompts or another --seed")
        stated["max_new_tokens"] = steps
    margin = min((lead for row in margins for lead in row if lead != float("inf")), default=float("inf"))
    return {"greedy.sequences": out.sequences}, {"generation": stated, "greedy_min_margin": margin}


def beam(subject, ids, mask, stated):
    """Beam search; None when float64 finds other hypotheses, so that nobody is held to a coin toss."""
    out, _ = generate(subject, ids, mask, **stated)
    if subject.double is not None:
        other, _ = generate(subject, ids, mask, model=subject.double, **stated)
        if not torch.equal(out.sequences, other.sequences):
            return None
    return out.sequences, out.sequences_scores


def record_beams(subject, inputs, options, stated):
    """`beam.*` and `beam_b.*` with their settings."""
    wanted = options.beam_settings
    if not wanted and options.beams:
        common = {"num_beams": options.beams, "early_stopping": False, "length_penalty": 1.0}
        wanted = [{**common, "num_return_sequences": 1}]
    made, facts = {}, {}
    for name, special in zip(("beam", "beam_b"), wanted):
        full = {**stated, "max_new_tokens": min(16, stated["max_new_tokens"]), **special}
        ids, mask = inputs["right.input_ids"], inputs["right.attention_mask"]
        if subject.kind == "causal":
            ids = inputs.get("beam.input_ids", inputs.get("greedy.row0.prompt_ids"))
            ids = ids.reshape(1, -1)
            mask = torch.ones_like(ids)
        found = beam(subject, ids, mask, full)
        if found is None:
            print(f"{name}: float64 finds other hypotheses; not recorded", file=sys.stderr)
            continue
        made[f"{name}.sequences"], made[f"{name}.sequences_scores"] = found
        if subject.kind == "causal":
            made["beam.input_ids"] = ids
        facts[name] = full
    return made, facts
