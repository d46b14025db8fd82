"""Records what SentencePiece itself gives for small models trained here, and for a large vocabulary's normaliser.

usage: record.py [VOCAB.gguf]     needs: sentencepiece, protobuf; writes beside itself.
The optional GGUF is a unigram vocabulary with a precompiled charsmap (the models folder's ggml-vocab-nomic-bert-moe).
"""
import json, os, random, struct, sys, tempfile
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDENS = os.path.join(HERE, "../../../../goldens/tokenizers")
STRINGS = [c["text"] for c in json.load(open(f"{GOLDENS}/llama2-like.json"))["strings"] if "\0" not in c["text"]]
EXTRA = ["a<sep>b", " <sep> x<sep>", "say [TOOL] now", "  two  spaces  ", "<s>uns", "</s>", "▁x", "ﬁne ｱｲｳ　Ｘ", "x" * 300]


def write(name, value):
    with open(os.path.join(HERE, name), "w") as f:
        json.dump(value, f, ensure_ascii=True, separators=(",", ":"))


def train(name, **options):
    with tempfile.TemporaryDirectory() as d:
        corpus = os.path.join(d, "corpus.txt")
        rng = random.Random(1)
        words = " ".join(STRINGS).split()
        with open(corpus, "w") as f:
            for _ in range(600):
                f.write(" ".join(rng.choice(words)[:40] for _ in range(8)) + "\n")
        rules = os.path.join(d, "rules.tsv")
        with open(rules, "w") as f:
            for a, b in [("Ａ", "A"), ("Ｘ", "X"), ("ﬁ", "fi"), ("　", " "), ("ｱ", "ア"), ("ｶﾞ", "ガ"), ("ｶ", "カ"), ("e\u0301", "\u00e9"), ("½", "1/2"), ("\u200b", "")]:
                f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        if options.pop("rules", False):
            options["normalization_rule_tsv"] = rules
        spm.SentencePieceTrainer.train(input=corpus, model_prefix=os.path.join(d, "m"), minloglevel=2, num_threads=1, **options)
        data = open(os.path.join(d, "m.model"), "rb").read()
    model = pb.ModelProto.FromString(data)
    model.trainer_spec.input[:] = []
    data = model.SerializeToString()
    open(os.path.join(HERE, name + ".model"), "wb").write(data)
    sp = spm.SentencePieceProcessor(model_proto=data)
    cases = [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))} for t in STRINGS + EXTRA]
    write(name + ".json", cases)


def gguf(path):
    d, at = open(path, "rb").read(), 8

    def number(f):
        nonlocal at
        v = struct.unpack_from(f, d, at)[0]
        at += struct.calcsize(f)
        return v

    def text():
        nonlocal at
        n = number("<Q")
        at += n
        return d[at - n : at].decode()

    def value(t):
        if t == 8:
            return text()
        if t == 9:
            e, n = number("<I"), number("<Q")
            return [value(e) for _ in range(n)]
        return number({0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}[t])

    number("<Q")
    keys = number("<Q")
    return {text(): value(number("<I")) for _ in range(keys)}


def charsmap(path):
    meta = gguf(path)
    get = lambda k: meta["tokenizer.ggml." + k]
    model = pb.ModelProto()
    for token, score, kind in zip(get("tokens"), get("scores"), get("token_type")):
        model.pieces.add(piece=token, score=score, type=kind)
    model.trainer_spec.model_type = 1
    model.trainer_spec.unk_id, model.trainer_spec.bos_id = 3, 0
    model.trainer_spec.eos_id, model.trainer_spec.pad_id = 2, 1
    model.normalizer_spec.precompiled_charsmap = bytes(b & 255 for b in get("precompiled_charsmap"))
    sp = spm.SentencePieceProcessor(model_proto=model.SerializeToString())
    rng = random.Random(2)
    odd = "ｱｲｳｶﾞﾊﾟｰﾞ　Ｘｙ１２ﬁﬃŒœ①㈱㍿℡½¼²ⅨＡ｡､･\u00a0\u2003\u200b\u00ad\u0301é\u1e9b\u0323Åﾡ가각ᄀ\u1161豈ﷺ𝒳𝟘㌀\u0085\t\n\r~～¯´¨ｶﾊﾞ…‥µΩK"
    texts = [c for c in odd] + ["".join(rng.choice(odd + " abc") for _ in range(rng.randint(2, 14))) for _ in range(200)]
    texts += ["ﾊﾝｶｸ ｶﾀｶﾅ", "全角　スペース", "ﬁnancial oﬀer", "e\u0301cole", "  lead  trail  ", "ｶﾞｷﾞｸﾞ"]
    write("nmt_nfkc.json", [{"text": t, "ids": sp.encode(t)} for t in texts])


train("unigram", vocab_size=260, model_type="unigram", rules=True, character_coverage=1.0, hard_vocab_limit=False,
      user_defined_symbols=["<sep>"], pad_id=3)
train("bpe", vocab_size=700, model_type="bpe", byte_fallback=True, normalization_rule_name="identity", character_coverage=0.98,
      remove_extra_whitespaces=False, split_digits=True, user_defined_symbols=["<sep>", "[TOOL]"], control_symbols=["<ctl>"])
if len(sys.argv) > 1:
    charsmap(sys.argv[1])
