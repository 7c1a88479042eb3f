"""Language models that answer: caches that grow, are padded, joined, cropped or cut; weights made at each use."""

import collections

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, ids, loop, prog
from serving_common import BF, Block, Dec, _load, _pick


@prog
def hf_dyncache():
    """A 1B-like Llama of few layers; torch.cat for every layer and token; all the prompt's logits, as plain scripts have them."""
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
    cfg = LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=6,
                      num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=8192)
    m = _load(lambda: LlamaForCausalLM(cfg), BF)
    with torch.inference_mode():
        for _ in loop(14):
            b = R.choice([1, 1, 4, 4, 16])
            n = R.randint(100, {1: 6000, 4: 2500, 16: 900}[b])
            x = ids(b, n, 128256)
            cache = DynamicCache()
            out = m(input_ids=x, past_key_values=cache, use_cache=True)
            for _t in loop(R.randint(8, 60)):
                tok = _pick(out.logits[:, -1])
                x = torch.cat([x, tok], 1)
                out = m(input_ids=tok, past_key_values=cache, use_cache=True)
            x.cpu()
            del cache, out


@prog
def padded_batcher():
    """Continuous batching over one padded cache: who joins is concatenated, who leaves is filtered out and the rest trimmed."""
    V = 32000
    m = _load(lambda: Dec(5, 2048, 16, 16, 5632, V), BF)
    state = None  # dict: kv, mask, pos, tok, left

    def prefill(k):
        lens = [int(30 * 2 ** (R.random() * 6)) for _ in range(k)]
        n = max(lens)
        x = ids(k, n, V)
        mask = torch.zeros(k, n, dtype=torch.bool, device=dev)
        for i, l in enumerate(lens):
            mask[i, n - l:] = True
        pos = (mask.long().cumsum(1) - 1).clamp(min=0)
        full = torch.ones(n, n, dtype=torch.bool, device=dev).tril()[None] & mask[:, None]
        full = full | torch.eye(n, dtype=torch.bool, device=dev)
        h, kv = m(x, None, pos, full[:, None])
        return {"kv": kv, "mask": mask, "pos": pos[:, -1:] + 1, "tok": _pick(m.head(h[:, -1])),
                "left": [R.randint(5, 70) for _ in range(k)]}

    def join(a, c):
        if a is None:
            return c
        s = max(a["mask"].shape[1], c["mask"].shape[1])

        def left(t, dim):
            w = s - t.shape[dim]
            return F.pad(t, (0, 0, w, 0) if dim == 2 else (w, 0)) if w else t

        kv = []
        for i in range(len(a["kv"])):
            kv.append(tuple(torch.cat([left(a["kv"][i][j], 2), left(c["kv"][i][j], 2)], 0) for j in (0, 1)))
            a["kv"][i] = c["kv"][i] = None
        return {"kv": kv, "mask": torch.cat([left(a["mask"], 1), left(c["mask"], 1)], 0),
                "pos": torch.cat([a["pos"], c["pos"]]), "tok": torch.cat([a["tok"], c["tok"]]),
                "left": a["left"] + c["left"]}

    def keep(a):
        rows = [i for i, l in enumerate(a["left"]) if l > 0]
        if not rows:
            return None
        if len(rows) == len(a["left"]):
            return a
        idx = torch.tensor(rows, device=dev)
        mask = a["mask"][idx]
        s = int(mask.sum(1).max())
        for i, (k, v) in enumerate(a["kv"]):
            a["kv"][i] = (k[idx][:, :, -s:].contiguous(), v[idx][:, :, -s:].contiguous())
        return {"kv": a["kv"], "mask": mask[:, -s:].contiguous(), "pos": a["pos"][idx], "tok": a["tok"][idx],
                "left": [a["left"][i] for i in rows]}

    with torch.inference_mode():
        for _ in loop(400):
            busy = len(state["left"]) if state else 0
            if busy < 24 and (busy == 0 or R.random() < 0.2):
                state = join(state, prefill(R.choice([1, 1, 2, 4])))
            state["mask"] = torch.cat([state["mask"], torch.ones_like(state["mask"][:, :1])], 1)
            h, state["kv"] = m(state["tok"], state["kv"], state["pos"], state["mask"][:, None, None])
            state["tok"] = _pick(m.head(h[:, -1]))
            state["pos"] = state["pos"] + 1
            state["left"] = [l - 1 for l in state["left"]]
            state = keep(state)


@prog
def bart_beams():
    """Long articles summarized by an encoder-decoder with beams (the cache is reordered at each step)."""
    from transformers import BartConfig, BartForConditionalGeneration
    cfg = BartConfig(vocab_size=50265, max_position_embeddings=4096, d_model=1024, encoder_layers=6, decoder_layers=4,
                     encoder_ffn_dim=4096, decoder_ffn_dim=4096, encoder_attention_heads=16, decoder_attention_heads=16)
    m = _load(lambda: BartForConditionalGeneration(cfg), torch.float16)
    with torch.no_grad():
        for _ in loop(8):
            b = R.choice([1, 2, 4, 6])
            n = R.randint(300, 4000 if b < 4 else 2200)
            x = ids(b, n, 50265)
            mask = torch.ones_like(x)
            for i in range(1, b):
                mask[i, R.randint(n // 2, n):] = 0
            y = m.generate(input_ids=x, attention_mask=mask, num_beams=R.choice([4, 4, 6]), do_sample=False,
                           max_new_tokens=R.randint(10, 32), length_penalty=2.0, early_stopping=True)
            y.cpu()


@prog
def draft_and_verify():
    """Speculative decoding: a small model drafts, the large one looks at all drafted tokens at once, both caches are cropped."""
    V = 128256
    big = _load(lambda: Dec(6, 3072, 24, 8, 8192, V), BF)
    small = _load(lambda: Dec(3, 1024, 16, 4, 2816, V), BF)

    def crop(kv, n):
        return [(k[:, :, :n], v[:, :, :n]) for k, v in kv]

    with torch.inference_mode():
        for _ in loop(10):
            n = R.randint(200, 7000)
            x = ids(1, n, V)
            h, kb = big(x)
            tok = _pick(big.head(h[:, -1]))
            _h, ks = small(x)
            x = torch.cat([x, tok], 1)
            g = 5
            end = n + R.randint(20, 120)
            for _t in loop(60):
                at = x.shape[1]
                if at >= end:
                    break
                drafts, probs, cur = [], [], x[:, ks[0][0].shape[2]:]
                for _d in range(g):
                    h, ks = small(cur, ks, ks[0][0].shape[2])
                    p = torch.softmax(small.head(h[:, -1]).float() / 0.8, -1)
                    cur = torch.multinomial(p, 1)
                    drafts.append(cur)
                    probs.append(p)
                d = torch.cat(drafts, 1)
                h, kb = big(torch.cat([x[:, -1:], d], 1), kb, at - 1)
                q = torch.softmax(big.head(h).float() / 0.8, -1)
                p = torch.stack(probs, 1)
                ratio = q[:, :-1].gather(2, d[..., None]) / p.gather(2, d[..., None]).clamp(min=1e-9)
                ratio.clamp(max=1.0).mean().item()
                k = min(g, int(R.expovariate(0.35)))  # with random weights nothing fits: drawn
                if k < g:
                    rest = (q[:, k] - p[:, k]).clamp(min=0)
                    rest = rest / rest.sum(-1, keepdim=True)
                    tok = torch.multinomial(rest.clamp(min=1e-12), 1)
                else:
                    tok = torch.multinomial(q[:, -1], 1)
                x = torch.cat([x, d[:, :k], tok], 1)
                kb = crop(kb, at + k)
                ks = crop(ks, min(at + k, ks[0][0].shape[2]))
                g = min(8, g + 2) if k == g else max(2, g - 1)
            del kb, ks


@prog
def long_local_global():
    """Long documents prefilled in chunks; every second layer looks back a window only, whose cache is cut as it slides."""
    V, W = 64000, 2048
    m = _load(lambda: Dec(4, 3072, 24, 8, 8192, V, windows=[W, None, W, None]), BF)
    with torch.inference_mode():
        for _ in loop(6):
            n = int(8000 * 2 ** (R.random() * 3.6))
            c = R.choice([1024, 2048, 4096])
            x = ids(1, n, V)
            kv, h = None, None
            for a in range(0, n, c):
                for _k in loop(1):
                    h, kv = m(x[:, a:a + c], kv, a)
            if h is None:
                break
            tok = _pick(m.head(h[:, -1]))
            for t in loop(R.randint(8, 50)):
                h, kv = m(tok, kv, n + t)
                tok = _pick(m.head(h[:, -1]))
            del kv, h


@prog
def picture_chat():
    """A vision-language model, stateless: each turn sends the whole conversation, pictures in tiles among it."""
    V, d = 32000, 2048

    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Conv2d(3, 1024, 14, 14)
            self.pos = nn.Parameter(torch.zeros(1, 576, 1024))
            self.b = nn.ModuleList([nn.TransformerEncoderLayer(1024, 16, 4096, 0.0, "gelu", batch_first=True,
                                                               norm_first=True) for _ in range(8)])
            self.proj = nn.Sequential(nn.Linear(1024, d), nn.GELU(), nn.Linear(d, d))

        def forward(self, x):
            x = self.p(x).flatten(2).transpose(1, 2) + self.pos
            for f in self.b:
                x = f(x)
            return self.proj(x)

    vit = _load(Vit, BF)
    m = _load(lambda: Dec(5, d, 16, 4, 8192, V), BF)

    def picture():
        h, w = R.choice([(336, 336), (336, 672), (672, 336), (672, 672), (336, 1008)])
        img = torch.randint(0, 256, (1, 3, R.randint(300, 2200), R.randint(300, 2200)), dtype=torch.uint8).to(dev)
        f = img.to(BF) / 255
        big = F.interpolate(f, size=(h, w), mode="bicubic", antialias=False)
        tiles = big.unfold(2, 336, 336).unfold(3, 336, 336).permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, 336, 336)
        small = F.interpolate(f, size=(336, 336), mode="bicubic", antialias=False)
        x = (torch.cat([small, tiles]) - 0.45) / 0.27
        return x

    with torch.inference_mode():
        for _ in loop(8):
            talk = []  # ids or pixel tiles
            for turn in loop(R.randint(1, 6)):
                if turn == 0 or R.random() < 0.3:
                    talk.append(picture())
                talk.append(ids(1, R.randint(10, 400), V))
                parts = [vit(p).flatten(0, 1)[None] if p.dim() == 4 else m.emb(p) for p in talk]
                x = torch.cat(parts, 1)
                h, kv = m(x)
                n, said = x.shape[1], []
                del parts, x
                tok = _pick(m.head(h[:, -1]))
                for t in loop(R.randint(5, 50)):
                    said.append(tok)
                    h, kv = m(tok, kv, n + t)
                    tok = _pick(m.head(h[:, -1]))
                talk.append(torch.cat(said + [tok], 1))
                del kv, h


class Int8Linear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.register_buffer("w", torch.randint(-127, 128, (o, i), dtype=torch.int8))
        self.register_buffer("s", torch.full((o, 1), 2e-4))

    def forward(self, x):
        return F.linear(x, self.w.to(x.dtype) * self.s.to(x.dtype))


@prog
def int8_weights():
    """An 8B-like decoder of few layers with int8 weights, made bfloat16 at each use."""
    V = 128256
    m = _load(lambda: Dec(6, 4096, 32, 8, 14336, V, lin=Int8Linear), BF)
    with torch.inference_mode():
        for _ in loop(12):
            b = R.choice([1, 1, 2, 8])
            n = R.randint(50, 4000 if b < 8 else 1200)
            h, kv = m(ids(b, n, V))
            tok = _pick(m.head(h[:, -1]))
            for t in loop(R.randint(6, 48)):
                h, kv = m(tok, kv, n + t)
                tok = _pick(m.head(h[:, -1]))
            del kv, h


@prog
def experts_on_demand():
    """Mixture of experts: they stay in host memory, and some of those last used on the GPU."""
    V, d, ff, E, layers, room = 32000, 2048, 5632, 12, 4, 18
    host = {}
    for i in range(layers):
        for e in range(E):
            w = [torch.randn(*s, device=dev, dtype=BF) * 0.02 for s in ((ff, d), (ff, d), (d, ff))]
            host[i, e] = [t.cpu() for t in w]
    here = collections.OrderedDict()

    def expert(i, e):
        if (i, e) in here:
            here.move_to_end((i, e))
        else:
            while len(here) >= room:
                here.popitem(last=False)
            here[i, e] = [t.to(dev, non_blocking=True) for t in host[i, e]]
        return here[i, e]

    class Moe(Block):
        count = 0

        def mlp(self, d, ff, lin):
            self.i = Moe.count
            Moe.count += 1
            self.router = lin(d, E)

        def feed(self, x):
            y = x.flatten(0, 1)
            w, k = torch.softmax(self.router(y).float(), -1).topk(2, -1)
            w = (w / w.sum(-1, keepdim=True)).to(x.dtype)
            out = torch.zeros_like(y)
            for e in k.unique().tolist():
                row, col = torch.where(k == e)
                w1, w3, w2 = expert(self.i, e)
                z = y[row]
                z = F.linear(F.silu(F.linear(z, w1)) * F.linear(z, w3), w2)
                out.index_add_(0, row, z * w[row, col, None])
            return out.view_as(x)

    m = _load(lambda: Dec(layers, d, 16, 8, ff, V, block=Moe), BF)
    with torch.inference_mode():
        for _ in loop(12):
            b, n = R.choice([1, 1, 1, 4]), R.randint(8, 2500)
            h, kv = m(ids(b, n, V))
            tok = _pick(m.head(h[:, -1]))
            for t in loop(R.randint(6, 40)):
                h, kv = m(tok, kv, n + t)
                tok = _pick(m.head(h[:, -1]))
            del kv, h
