"""Recurrent networks, texts, time series."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step


@prog
def gru_train():
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
    V = 8000
    emb = nn.Embedding(V, 256).to(dev)
    g = nn.GRU(256, 512, 2, batch_first=True, bidirectional=True, dropout=0.2).to(dev)
    out = nn.Linear(1024, 40).to(dev)
    opt = torch.optim.Adam([p for m in (emb, g, out) for p in m.parameters()], lr=1e-3)
    for _ in loop(70):
        b = R.randint(16, 64)
        top = R.randint(20, 300)
        ls = [R.randint(5, top) for _ in range(b)]
        x = pad_sequence([torch.randint(0, V, (l,)) for l in ls], batch_first=True).to(dev)
        p = pack_padded_sequence(emb(x), torch.tensor(ls), batch_first=True, enforce_sorted=False)
        o, _ = pad_packed_sequence(g(p)[0], batch_first=True)
        step(opt, F.cross_entropy(out(o).flatten(0, 1), torch.randint(0, 40, (o.shape[0] * o.shape[1],), device=dev)))


@prog
def lstm_infer():
    m = nn.LSTM(512, 1024, 3, batch_first=True).to(dev).eval()
    out = nn.Linear(1024, 10000).to(dev)
    state = {}
    with torch.no_grad():
        for _ in loop(400):
            s = R.randint(0, 12)
            b, l = 1 + s % 5 * 3, R.choice([1, 1, 5, 20, 100, 250])
            x = torch.randn(b, l, 512, device=dev)
            o, st = m(x, state.get(s))
            state[s] = st
            torch.log_softmax(out(o), -1).max(-1).values.cpu()
            if R.random() < 0.1:
                state.pop(s, None)


@prog
def embbag_text():
    V = 150000
    eb = nn.EmbeddingBag(V, 256, mode="mean").to(dev)
    mlp = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 20)).to(dev)
    opt = torch.optim.Adam(list(eb.parameters()) + list(mlp.parameters()), lr=1e-3)
    for i in loop(150):
        b = R.randint(64, 1024)
        lens = torch.randint(1, 200, (b,))
        off = torch.cat([torch.zeros(1, dtype=torch.long), lens.cumsum(0)[:-1]]).to(dev)
        t = torch.randint(0, V, (int(lens.sum()),)).to(dev)
        y = torch.randint(0, 20, (b,)).to(dev)
        if i % 10 == 9:
            with torch.no_grad():
                (mlp(eb(t, off)).argmax(-1) == y).float().mean().item()
        else:
            step(opt, F.cross_entropy(mlp(eb(t, off)), y))


@prog
def tcn_forecast():
    from torch.nn.utils.parametrizations import weight_norm

    class Block(nn.Module):
        def __init__(self, ci, co, dil):
            super().__init__()
            self.pad = 2 * dil
            self.c1 = weight_norm(nn.Conv1d(ci, co, 3, dilation=dil))
            self.c2 = weight_norm(nn.Conv1d(co, co, 3, dilation=dil))
            self.res = nn.Conv1d(ci, co, 1) if ci != co else nn.Identity()

        def forward(self, x):
            y = F.dropout(F.relu(self.c1(F.pad(x, (self.pad, 0)))), 0.1, self.training)
            y = F.dropout(F.relu(self.c2(F.pad(y, (self.pad, 0)))), 0.1, self.training)
            return F.relu(y + self.res(x))

    m = nn.Sequential(*[Block(8 if i == 0 else 96, 96, 2 ** i) for i in range(7)], nn.Conv1d(96, 8, 1)).to(dev)
    opt = torch.optim.Adam(m.parameters(), lr=1e-3)
    for _ in loop(35):
        b, l = R.choice([16, 32, 64]), R.randint(150, 1800)
        x = torch.randn(b, 8, l + 1).cumsum(-1).to(dev)
        step(opt, F.mse_loss(m(x[..., :-1]), x[..., 1:]))
