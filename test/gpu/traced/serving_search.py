"""Search and recommendations, served: an index of documents, tables of items."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, ids, loop, prog
from serving_common import _load


class Enc(nn.Module):
    def __init__(self, layers, d, h, vocab):
        super().__init__()
        self.e, self.p, self.h = nn.Embedding(vocab, d), nn.Embedding(1024, d), h
        self.n0 = nn.LayerNorm(d)
        self.b = nn.ModuleList([nn.ModuleDict({
            "qkv": nn.Linear(d, 3 * d), "o": nn.Linear(d, d), "n1": nn.LayerNorm(d), "n2": nn.LayerNorm(d),
            "u": nn.Linear(d, 4 * d), "w": nn.Linear(4 * d, d)}) for _ in range(layers)])

    def forward(self, x, mask):
        b, n = x.shape
        x = self.n0(self.e(x) + self.p(torch.arange(n, device=x.device))[None])
        add = torch.zeros(b, 1, 1, n, device=x.device, dtype=x.dtype).masked_fill(~mask[:, None, None].bool(), -1e4)
        add = add.expand(b, 1, n, n).contiguous()
        for f in self.b:
            q, k, v = f["qkv"](x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=add)
            x = f["n1"](x + f["o"](a.transpose(1, 2).reshape(b, n, -1)))
            x = f["n2"](x + f["w"](F.gelu(f["u"](x))))
        return x


@prog
def rag_rerank():
    """Documents embedded in batches sorted by length; questions searched over an index in pieces; what is found is reranked."""
    V, D = 30522, 768
    emb = _load(lambda: Enc(6, D, 12, V), torch.float16)
    cross = _load(lambda: Enc(8, 1024, 16, V), torch.float16)
    score = _load(lambda: nn.Sequential(nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1)), torch.float16)
    index = torch.empty(1_500_000, D, device=dev, dtype=torch.float16)
    for i in range(0, len(index), 100_000):
        index[i:i + 100_000] = F.normalize(torch.randn(100_000, D, device=dev), dim=-1).half()

    def pad(lens):
        n = max(lens)
        mask = torch.arange(n)[None] < torch.tensor(lens)[:, None]
        return ids(len(lens), n, V), mask.to(dev)

    def vectors(lens, size):
        lens, out = sorted(lens, reverse=True), []
        for i in range(0, len(lens), size):
            x, mask = pad(lens[i:i + size])
            h = emb(x, mask)
            e = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            out.append(F.normalize(e.float(), dim=-1))
        return torch.cat(out)

    def search(q, k):
        best = None
        for i in range(0, len(index), 500_000):
            s, j = (q.half() @ index[i:i + 500_000].t()).float().topk(k, dim=1)
            j = j + i
            if best is not None:
                s, j = torch.cat([best[0], s], 1), torch.cat([best[1], j], 1)
                s, o = s.topk(k, dim=1)
                j = j.gather(1, o)
            best = (s, j)
        return best

    with torch.inference_mode():
        for i in loop(40):
            if i % 3 == 0:
                lens = [min(512, int(24 * math.exp(abs(R.gauss(0, 1.3))))) for _ in range(R.randint(200, 1200))]
                e = vectors(lens, R.choice([32, 64, 128])).half()
                a = R.randint(0, len(index) - len(e) - 1)
                index[a:a + len(e)] = e
            q = vectors([R.randint(6, 60) for _ in range(R.choice([1, 4, 16, 100, 400]))], 64)
            s, j = search(q, 100)
            rows = index[j[0]].float() @ q[0]
            rows.topk(20).values.cpu()
            # the first questions' candidates, in batches of up to 16,000 tokens
            for _q in range(min(len(q), 2)):
                lens, scores, at = sorted(R.randint(60, 512) for _ in range(100)), [], 0
                while at < len(lens):
                    k = at
                    while k < len(lens) and lens[k] * (k - at + 1) <= 16000:
                        k += 1
                    x, mask = pad(lens[at:max(k, at + 1)])
                    scores.append(score(cross(x, mask)[:, 0]).float().flatten())
                    at = max(k, at + 1)
                torch.cat(scores).sigmoid().topk(5).indices.cpu()


@prog
def ranking_tables():
    """A recommender: embedding tables of millions of rows, pair products, and candidates from all items."""
    D = 64
    rows = [8_000_000, 5_000_000, 3_000_000, 2_000_000, 1_000_000, 500_000, 300_000, 100_000, 50_000, 12_000,
            10_000, 5_000, 2_000, 1_000, 500, 100, 60, 24, 10, 4]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.ModuleList([nn.EmbeddingBag(n, D, mode="sum") for n in rows])
            self.bot = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, D), nn.ReLU())
            k = len(rows) + 1
            self.top = nn.Sequential(nn.Linear(D + k * (k - 1) // 2, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                                     nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1))
            self.user = nn.Sequential(nn.Linear(D * k, 512), nn.ReLU(), nn.Linear(512, D))
            self.register_buffer("ij", torch.tril_indices(k, k, -1))

        def vectors(self, dense, sparse):
            return torch.stack([self.bot(dense)] + [t(v, o) for t, (v, o) in zip(self.t, sparse)], 1)

        def forward(self, dense, sparse):
            z = self.vectors(dense, sparse)
            p = torch.bmm(z, z.transpose(1, 2))
            return self.top(torch.cat([z[:, 0], p[:, self.ij[0], self.ij[1]]], 1)).sigmoid()

    m = _load(Net)

    def batch(b):
        sparse = []
        for i, n in enumerate(rows):
            many = R.choice([5, 20, 60]) if i < 3 else 1
            c = torch.randint(1, many + 1, (b,))
            o = torch.cat([torch.zeros(1, dtype=torch.long), c.cumsum(0)[:-1]])
            sparse.append((torch.randint(0, n, (int(c.sum()),)).to(dev), o.to(dev)))
        return torch.rand(b, 13).to(dev).log1p(), sparse

    items = m.t[2].weight
    with torch.inference_mode():
        for i in loop(120):
            if i % 3 == 0:
                b = R.choice([4, 16, 64, 200])
                u = F.normalize(m.user(m.vectors(*batch(b)).flatten(1)), dim=1)
                s = u @ items.t()
                seen = torch.randint(0, len(items), (b, 50), device=dev)
                s.scatter_(1, seen, float("-inf"))
                s.topk(500, dim=1).indices.cpu()
                del s
            else:
                p = m(*batch(int(256 * 2 ** (R.random() * 7))))
                p.flatten().topk(20).indices.cpu()
