"""Graphs, points, differential equations, reinforcement learning, recommendations."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step


def _gnn_train(conv, make, n, hid, cin=128, drop=0.5):
    net = nn.ModuleList([conv(cin, hid), conv(hid, hid), conv(hid, 32)]).to(dev)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for i in loop(n):
        x, ei, seeds = make()
        for k, c in enumerate(net):
            x = c(x, ei)
            if k < 2:
                x = F.dropout(F.relu(x), drop)
        y = torch.randint(0, 32, (seeds,), device=dev)
        step(opt, F.cross_entropy(x[:seeds], y))


@prog
def gcn_graphs():
    from torch_geometric.nn import GCNConv

    def make():
        n = R.randint(4000, 40000)
        e = n * R.randint(4, 14)
        return torch.randn(n, 128, device=dev), torch.randint(0, n, (2, e)).to(dev), n // 2

    _gnn_train(GCNConv, make, 45, 192)


@prog
def sage_batches():
    from torch_geometric.nn import SAGEConv
    feats = torch.randn(300000, 128, device=dev)

    def make():
        seeds = R.choice([256, 512, 1024])
        n1 = int(seeds * R.uniform(5, 11))
        n2 = int(n1 * R.uniform(3, 8))
        nid = torch.randint(0, 300000, (n2,)).to(dev)
        e1 = torch.stack([torch.randint(0, n1, (seeds * 10,)), torch.randint(0, seeds, (seeds * 10,))])
        e2 = torch.stack([torch.randint(0, n2, (n1 * 8,)), torch.randint(0, n1, (n1 * 8,))])
        return feats[nid], torch.cat([e1, e2], 1).to(dev), seeds

    _gnn_train(SAGEConv, make, 60, 256)


@prog
def gat_molecules():
    from torch_geometric.nn import GATConv, global_mean_pool
    c = nn.ModuleList([GATConv(32, 64, heads=4), GATConv(256, 64, heads=4), GATConv(256, 64, heads=1)]).to(dev)
    out = nn.Linear(64, 1).to(dev)
    opt = torch.optim.Adam(list(c.parameters()) + list(out.parameters()), lr=1e-3)
    for _ in loop(40):
        g = R.randint(32, 512)
        sizes = torch.randint(8, 60, (g,))
        batch = torch.repeat_interleave(torch.arange(g), sizes)
        off = torch.cumsum(sizes, 0) - sizes
        src = torch.arange(batch.numel()).repeat(4)
        bb = batch.repeat(4)
        dst = off[bb] + (torch.rand(src.numel()) * sizes[bb]).long()
        ei, batch = torch.stack([src, dst]).to(dev), batch.to(dev)
        x = torch.randn(batch.numel(), 32, device=dev)
        for l in c:
            x = F.elu(l(x, ei))
        p = out(global_mean_pool(x, batch))
        step(opt, F.mse_loss(p, torch.randn_like(p)))


@prog
def neural_ode():
    from torchdiffeq import odeint, odeint_adjoint

    class Fn(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.c2 = nn.Conv2d(33, 32, 3, padding=1), nn.Conv2d(33, 32, 3, padding=1)
            self.n1, self.n2 = nn.GroupNorm(8, 32), nn.GroupNorm(8, 32)

        def forward(self, t, x):
            tt = torch.ones_like(x[:, :1]) * t
            x = F.relu(self.n1(self.c1(torch.cat([x, tt], 1))))
            return self.n2(self.c2(torch.cat([x, tt], 1)))

    f = Fn().to(dev)
    stem = nn.Conv2d(1, 32, 4, 2, 1).to(dev)
    head = nn.Linear(32, 10).to(dev)
    opt = torch.optim.Adam([p for m in (f, stem, head) for p in m.parameters()], lr=1e-3)
    for i in loop(22):
        b = R.choice([16, 32, 64, 100])
        x = stem(torch.rand(b, 1, 28, 28, device=dev))
        t = torch.tensor([0.0, R.uniform(0.5, 1.5)], device=dev)
        solve = odeint_adjoint if i % 3 == 2 else odeint
        y = solve(f, x, t, rtol=1e-2, atol=1e-2, method="dopri5")[-1]
        step(opt, F.cross_entropy(head(y.mean((2, 3))), torch.randint(0, 10, (b,), device=dev)))


@prog
def ppo_rollouts():
    body = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(),
                         nn.LazyLinear(256), nn.ReLU()).to(dev)
    E = 96
    body(torch.zeros(1, 4, 64, 64, device=dev))
    pi, vf = nn.Linear(256, 6).to(dev), nn.Linear(256, 1).to(dev)
    ps = [p for m in (body, pi, vf) for p in m.parameters()]
    opt = torch.optim.Adam(ps, lr=3e-4)
    for _ in loop(4):
        T = R.randint(24, 64)
        obs = torch.rand(E, 4, 64, 64, device=dev)
        O = A = LP = V = RW = None
        with torch.no_grad():
            for _t in range(T):
                h = body(obs)
                dist = torch.distributions.Categorical(logits=pi(h), validate_args=False)
                a = dist.sample()
                new = [obs[None], a[None], dist.log_prob(a)[None], vf(h)[None, :, 0], torch.randn(1, E, device=dev)]
                if O is None:
                    O, A, LP, V, RW = new
                else:
                    O, A, LP, V, RW = [torch.cat([x, y]) for x, y in zip((O, A, LP, V, RW), new)]
                obs = torch.cat([obs[:, 1:], torch.rand(E, 1, 64, 64, device=dev)], 1)
            adv, last = torch.zeros_like(RW), torch.zeros(E, device=dev)
            for t in reversed(range(T)):
                nv = V[t + 1] if t + 1 < T else V[t]
                last = RW[t] + 0.99 * nv - V[t] + 0.99 * 0.95 * last
                adv[t] = last
            ret = (adv + V).flatten()
            adv = adv.flatten()
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        O, A, LP = O.flatten(0, 1), A.flatten(), LP.flatten()
        for _ep in loop(2):
            for k in torch.randperm(T * E, device=dev).chunk(4):
                h = body(O[k])
                dist = torch.distributions.Categorical(logits=pi(h), validate_args=False)
                r = (dist.log_prob(A[k]) - LP[k]).exp()
                lp = -torch.min(r * adv[k], r.clamp(0.8, 1.2) * adv[k]).mean()
                step(opt, lp + 0.5 * F.mse_loss(vf(h)[:, 0], ret[k]) - 0.01 * dist.entropy().mean())


@prog
def dqn_replay():
    """Small network, replay ring kept on the GPU, target network copies; many tiny tensors."""
    q = nn.Sequential(nn.Linear(24, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 5)).to(dev)
    tq = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    N = 200000
    S, S2 = torch.zeros(N, 24, device=dev), torch.zeros(N, 24, device=dev)
    A, W = torch.zeros(N, dtype=torch.long, device=dev), torch.zeros(N, device=dev)
    pos, s = 0, torch.randn(16, 24, device=dev)
    for i in loop(350):
        with torch.no_grad():
            a = q(s).argmax(1)
            s2 = s + 0.1 * torch.randn_like(s)
            k = torch.arange(pos, pos + 16, device=dev) % N
            S[k], A[k], S2[k], W[k] = s, a, s2, s2.sum(1)
            s, pos = s2, pos + 16
            k = torch.randint(0, pos, (R.choice([64, 128, 256]),), device=dev)
            y = W[k] + 0.99 * tq(S2[k]).max(1).values
        step(opt, F.smooth_l1_loss(q(S[k]).gather(1, A[k][:, None])[:, 0], y))
        if i % 50 == 49:
            tq.load_state_dict(q.state_dict())


@prog
def recsys_sparse():
    rows = [2000000, 600000, 300000, 100000, 20000, 500]
    D = 64
    es = nn.ModuleList([nn.Embedding(r, D, sparse=True, device=dev) for r in rows])
    bag = nn.EmbeddingBag(400000, D, mode="sum", sparse=True, device=dev)
    bot = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, D), nn.ReLU()).to(dev)
    top = nn.Sequential(nn.Linear(D + 28, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)).to(dev)
    so = torch.optim.SparseAdam(list(es.parameters()) + list(bag.parameters()), lr=1e-3)
    do = torch.optim.Adam(list(bot.parameters()) + list(top.parameters()), lr=1e-3)
    iu = torch.triu_indices(8, 8, 1, device=dev)
    for _ in loop(40):
        b = R.choice([2048, 4096, 8192, 6000])
        x = bot(torch.randn(b, 13).to(dev))
        hot = torch.randint(1, 30, (b,))
        off = (hot.cumsum(0) - hot).to(dev)
        v = [x] + [e((torch.rand(b) ** 3 * r).long().clamp(max=r - 1).to(dev)) for e, r in zip(es, rows)]
        v.append(bag(torch.randint(0, 400000, (int(hot.sum()),)).to(dev), off))
        z = torch.stack(v, 1)
        inter = torch.bmm(z, z.transpose(1, 2))[:, iu[0], iu[1]]
        p = top(torch.cat([x, inter], 1))[:, 0]
        loss = F.binary_cross_entropy_with_logits(p, torch.randint(0, 2, (b,)).float().to(dev))
        so.zero_grad(set_to_none=True)
        do.zero_grad(set_to_none=True)
        loss.backward()
        so.step()
        do.step()


@prog
def dgcnn_points():
    class Edge(nn.Module):
        def __init__(self, i, o, k=16):
            super().__init__()
            self.k = k
            self.f = nn.Sequential(nn.Conv2d(2 * i, o, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2))

        def forward(self, x):                      # b c n
            b, c, n = x.shape
            with torch.no_grad():
                p = x.transpose(1, 2)
                idx = torch.cdist(p, p).topk(self.k, largest=False).indices
            nb = torch.gather(x[:, :, None].expand(b, c, n, n), 3, idx[:, None].expand(b, c, n, self.k)) \
                if n <= 256 else \
                x.transpose(1, 2).reshape(b * n, c)[(idx + torch.arange(b, device=x.device)[:, None, None] * n)] \
                .permute(0, 3, 1, 2)
            ctr = x[..., None].expand(b, c, n, self.k)
            return self.f(torch.cat([nb - ctr, ctr], 1)).max(-1).values

    es = nn.ModuleList([Edge(3, 64), Edge(64, 64), Edge(64, 128)]).to(dev)
    fin = nn.Sequential(nn.Conv1d(256, 512, 1), nn.BatchNorm1d(512), nn.LeakyReLU(0.2)).to(dev)
    cls = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 40)).to(dev)
    opt = torch.optim.Adam([p for m in (es, fin, cls) for p in m.parameters()], lr=1e-3)
    for _ in loop(35):
        b, n = R.choice([4, 8, 16]), R.choice([200, 512, 777, 1024, 1500, 2048])
        x, fs = torch.randn(b, 3, n).to(dev), []
        for e in es:
            x = e(x)
            fs.append(x)
        x = fin(torch.cat(fs, 1))
        o = cls(torch.cat([x.max(-1).values, x.mean(-1)], 1))
        step(opt, F.cross_entropy(o, torch.randint(0, 40, (b,), device=dev)))
