"""Training that gathers rows of large tables: a sampled graph, embeddings."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step


@prog
def neighbour_sampling():
    """Three hops sampled on the GPU from a graph of 1.5 million nodes, then inference layer by layer for all of them."""
    N, fan = 1_500_000, [15, 10, 5]
    deg = (4 * torch.rand(N, device=dev).clamp(min=1e-4) ** -0.6).long().clamp(1, 1000)
    ptr = torch.cat([torch.zeros(1, dtype=torch.long, device=dev), deg.cumsum(0)])
    col = torch.randint(0, N, (int(ptr[-1]),), device=dev)
    feat, lab = torch.randn(N, 100, device=dev), torch.randint(0, 47, (N,), device=dev)

    class Sage(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.a, self.b = nn.Linear(i, o), nn.Linear(i, o, bias=False)

        def forward(self, x, nb):
            return self.a(x) + self.b(nb)

    ls = nn.ModuleList([Sage(100, 256), Sage(256, 256), Sage(256, 47)]).to(dev)
    opt = torch.optim.Adam(ls.parameters(), lr=3e-3)
    for i in loop(150):
        seeds = torch.randint(0, N, (R.choice([1024, 1024, 1024, 517]),), device=dev)
        nodes, hops = seeds, []
        for k in fan:
            at = ptr[nodes][:, None] + (torch.rand(nodes.numel(), k, device=dev) * deg[nodes][:, None]).long()
            nb = col[at]
            uniq, inv = torch.unique(torch.cat([nodes, nb.flatten()]), return_inverse=True)
            hops.append((inv[:nodes.numel()], inv[nodes.numel():].view(-1, k)))
            nodes = uniq
        x = feat[nodes]
        for j, (own, nb) in enumerate(reversed(hops)):
            x = ls[j](x[own], x[nb].mean(1))
            if j < 2:
                x = F.dropout(F.relu(x), 0.5)
        step(opt, F.cross_entropy(x, lab[seeds]))
        if i % 50 == 49:
            with torch.no_grad():
                x = feat
                for j, f in enumerate(ls):
                    y = torch.empty(N, f.a.out_features, device=dev)
                    for a in range(0, N, 150000):
                        e = min(N, a + 150000)
                        seg = torch.repeat_interleave(torch.arange(e - a, device=dev), deg[a:e])
                        s = torch.zeros(e - a, x.shape[1], device=dev)
                        lo, hi = int(ptr[a]), int(ptr[e])
                        for c in range(lo, hi, 1_000_000):
                            d = min(hi, c + 1_000_000)
                            s.index_add_(0, seg[c - lo:d - lo], x[col[c:d]])
                        y[a:e] = f(x[a:e], s / deg[a:e, None])
                    x = F.relu(y) if j < 2 else y
                (x.argmax(1) == lab).float().mean().item()
                del x, y, s, seg


@prog
def dlrm_tables():
    """26 tables from three rows to millions, some with many indices a sample; sparse Adagrad beside a dense one."""
    D = 64
    rows = [6000000, 4000000, 3000000, 1500000, 900000, 500000, 300000, 140000, 90000, 40000, 20000, 14000, 11000,
            9000, 7000, 5000, 2200, 1500, 980, 640, 300, 150, 100, 60, 10, 3]
    es = nn.ModuleList()
    for r in rows:
        e = nn.EmbeddingBag(r, D, mode="sum", sparse=True, device=dev)
        nn.init.uniform_(e.weight, -r ** -0.5, r ** -0.5)
        es.append(e)
    bot = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, D), nn.ReLU()).to(dev)
    top = nn.Sequential(nn.Linear(D + 351, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512),
                        nn.ReLU(), nn.Linear(512, 1)).to(dev)
    so = torch.optim.Adagrad(es.parameters(), lr=0.01, foreach=False)
    do = torch.optim.Adagrad(list(bot.parameters()) + list(top.parameters()), lr=0.01)
    li, lj = torch.tril_indices(27, 27, -1, device=dev)

    def forward(b):
        dense = torch.log1p(torch.rand(b, 13) * 100).to(dev)
        v = [bot(dense)]
        for k, (e, r) in enumerate(zip(es, rows)):
            if k % 5 == 0:
                hot = torch.randint(1, 20, (b,))
                off = (hot.cumsum(0) - hot).to(dev)
                ix = (torch.rand(int(hot.sum())) ** 3 * r).long().clamp(max=r - 1).to(dev)
            else:
                off = torch.arange(b, device=dev)
                ix = (torch.rand(b) ** 3 * r).long().clamp(max=r - 1).to(dev)
            v.append(e(ix, off))
        z = torch.stack(v, 1)
        it = torch.bmm(z, z.transpose(1, 2))[:, li, lj]
        return top(torch.cat([v[0], it], 1))[:, 0]

    for i in loop(60):
        b = R.choice([8192, 8192, 16384])
        y = torch.randint(0, 2, (b,)).float().to(dev)
        loss = F.binary_cross_entropy_with_logits(forward(b), y)
        so.zero_grad(set_to_none=True)
        do.zero_grad(set_to_none=True)
        loss.backward()
        so.step()
        do.step()
        loss.item()
        if i % 15 == 14:
            sc = []
            with torch.no_grad():
                for _k in range(4):
                    sc.append(forward(16384).sigmoid())
                s = torch.cat(sc)
                t = torch.randint(0, 2, s.shape, device=dev)[s.argsort()].float()
                n1 = t.sum()
                ((torch.arange(1, t.numel() + 1, device=dev) * t).sum() - n1 * (n1 + 1) / 2).item()
