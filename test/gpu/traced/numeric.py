"""Numbers without a network."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, ids, loop, prog, step


@prog
def linalg_jobs():
    for i in loop(140):
        kind = R.choice(["kalman", "chol", "svd", "solve", "eigh", "qr", "big"])
        if kind == "kalman":
            b, n, o = R.randint(32, 2000), R.randint(4, 24), R.randint(2, 6)
            Fm = torch.eye(n, device=dev) + 0.01 * torch.randn(n, n, device=dev)
            H = torch.randn(o, n, device=dev)
            x, P = torch.zeros(b, n, 1, device=dev), torch.eye(n, device=dev).expand(b, n, n)
            I = torch.eye(n, device=dev)
            for _ in range(8):
                x, P = Fm @ x, Fm @ P @ Fm.t() + 0.01 * I
                S = H @ P @ H.t() + 0.1 * torch.eye(o, device=dev)
                K = torch.linalg.solve(S, H @ P).transpose(1, 2)
                x = x + K @ (torch.randn(b, o, 1, device=dev) - H @ x)
                P = (I - K @ H) @ P
        elif kind == "big":
            n = R.randint(500, 3500)
            A = torch.randn(n, n, device=dev)
            torch.linalg.cholesky(A @ A.t() / n + torch.eye(n, device=dev)).diagonal().log().sum().item()
            torch.linalg.solve(A + n * torch.eye(n, device=dev), torch.randn(n, R.randint(1, 64), device=dev))
        else:
            n = R.randint(6, 32) if kind in ("svd", "eigh") else R.randint(8, 160)
            b = R.randint(8, 1500) if kind != "qr" else R.randint(2, 24)
            A = torch.randn(b, n, n, device=dev)
            if kind == "svd":
                U, s, V = torch.linalg.svd(A, full_matrices=False)
                (U * s[:, None]) @ V
            elif kind == "qr":
                torch.linalg.qr(A)
            else:
                S = A @ A.transpose(1, 2) + n * torch.eye(n, device=dev)
                if kind == "chol":
                    L = torch.linalg.cholesky(S)
                    torch.cholesky_solve(torch.randn(b, n, 3, device=dev), L)
                elif kind == "eigh":
                    torch.linalg.eigh(S)
                else:
                    torch.linalg.solve(S, torch.randn(b, n, 5, device=dev))
    torch.cuda.synchronize()


@prog
def fft_audio():
    done = []
    for i in loop(90):
        b, n = R.choice([1, 2, 4, 8, 16]), int(16000 * R.uniform(0.5, 30))
        nf = R.choice([400, 512, 1024])
        x = torch.randn(b, n).to(dev)
        w = torch.hann_window(nf, device=dev)
        s = torch.stft(x, nf, nf // 4, window=w, return_complex=True)
        mel = torch.rand(80, nf // 2 + 1, device=dev) @ s.abs().pow(2)
        lm = torch.log(mel.clamp(min=1e-8))
        lm = (lm - lm.mean(-1, keepdim=True)) / (lm.std(-1, keepdim=True) + 1e-5)
        done.append(lm.mean(1))
        if len(done) > 12:
            done = done[6:]
        if i % 3 == 0:                              # reverberation
            k = torch.randn(8000, device=dev) * torch.linspace(1, 0, 8000, device=dev)
            L = n + 8000
            torch.fft.irfft(torch.fft.rfft(x, L) * torch.fft.rfft(k, L), L)[:, :n].cpu()
        if i % 7 == 0 and b <= 4:                   # Griffin-Lim
            mag, ph = s.abs(), torch.rand_like(s.real) * 6.28
            for _ in range(4):
                y = torch.istft(torch.polar(mag, ph), nf, nf // 4, window=w, length=n)
                ph = torch.stft(y, nf, nf // 4, window=w, return_complex=True).angle()


@prog
def knn_batches():
    ref = torch.randn(60000, 96, device=dev)
    best = []
    for _ in loop(60):
        q = torch.randn(R.randint(100, 6000), 96).to(dev)
        if R.random() < 0.5:
            d = torch.cdist(q, ref)
        else:
            d = (q * q).sum(1, keepdim=True) - 2 * q @ ref.t() + (ref * ref).sum(1)[None]
        v, i = d.topk(R.choice([1, 10, 50]), largest=False)
        del d
        nb = ref[i].mean(1)
        best.append(F.cosine_similarity(nb, q))
    torch.cat(best).cpu()


@prog
def kmeans():
    for _ in loop(8):
        n, d, k = R.randint(20000, 200000), R.choice([16, 32, 64, 128]), R.randint(20, 1000)
        x = torch.randn(n, d, device=dev)
        c = x[torch.randperm(n, device=dev)[:k]].clone()
        for _it in loop(R.randint(10, 40)):
            a = torch.cdist(x, c).argmin(1)
            s = torch.zeros_like(c).index_add_(0, a, x)
            m = torch.bincount(a, minlength=k).float()
            c2 = torch.where(m[:, None] > 0, s / m.clamp(min=1)[:, None], c)
            if (c2 - c).norm().item() < 1e-3:
                break
            c = c2


@prog
def func_jac():
    from torch.func import functional_call, grad, hessian, jacrev, vmap
    m = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 16)).to(dev)
    par = {k: v.detach() for k, v in m.named_parameters()}

    def f(p, x):
        return functional_call(m, p, (x,))

    def loss(p, x, y):
        return F.mse_loss(f(p, x), y)

    for i in loop(50):
        b = R.randint(64, 1200)
        x, y = torch.randn(b, 32, device=dev), torch.randn(b, 16, device=dev)
        if i % 3 == 0:
            J = vmap(jacrev(f, argnums=1), in_dims=(None, 0))(par, x)
            (J @ J.transpose(1, 2)).diagonal(dim1=1, dim2=2).sum().item()
        elif i % 3 == 1:
            g = vmap(grad(loss), in_dims=(None, 0, 0))(par, x, y)
            nrm = sum(v.flatten(1).pow(2).sum(1) for v in g.values()).sqrt()
            sc = (1.0 / nrm).clamp(max=1)
            for k in par:                           # clipped per-sample gradients
                par[k] = par[k] - 1e-3 * torch.einsum("b,b...->...", sc, g[k]) / b
        else:
            vmap(hessian(lambda z: f(par, z).pow(2).sum()))(x[:min(b, 200)]).diagonal(dim1=1, dim2=2).sum().item()


@prog
def eval_collect():
    V, d = 32000, 512
    emb = nn.Embedding(V, d).to(dev)
    enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 8, 2048, batch_first=True, norm_first=True), 4,
                                enable_nested_tensor=False).to(dev).eval()
    head = nn.Linear(d, V).to(dev)
    with torch.no_grad():
        for _ in loop(3):
            lo, la = [], []
            for _k in loop(12):
                b, l = R.randint(8, 32), R.randint(100, 300)
                x = ids(b, l, V)
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    lo.append(head(enc(emb(x))).flatten(0, 1))
                la.append(x.flatten())
            if not lo:
                break
            lo, la = torch.cat(lo), torch.cat(la)
            tot = 0.0
            for a, c in zip(lo.split(2048), la.split(2048)):
                tot += F.cross_entropy(a.float(), c, reduction="sum").item()
            (lo.argmax(-1) == la).float().mean().item()
            del lo, la, a, c


@prog
def small_mlp_sweep():
    """Many small models made, trained and dropped; the best few are kept."""
    X, Y = torch.randn(40000, 100, device=dev), torch.randint(0, 5, (40000,), device=dev)
    best = []
    for _ in loop(28):
        w, dep = R.choice([64, 200, 512, 1500, 3000]), R.randint(1, 4)
        ls, c = [], 100
        for _k in range(dep):
            ls += [nn.Linear(c, w), nn.BatchNorm1d(w), nn.ReLU(), nn.Dropout(0.2)]
            c = w
        m = nn.Sequential(*ls, nn.Linear(c, 5)).to(dev)
        opt = R.choice([torch.optim.Adam, torch.optim.Adagrad, torch.optim.SGD])(m.parameters(), lr=1e-3)
        b = R.choice([256, 1000, 5000])
        for k in loop(8):
            step(opt, F.cross_entropy(m(X[k * b % 30000:][:b]), Y[k * b % 30000:][:b]))
        m.eval()
        with torch.no_grad():
            s = F.cross_entropy(m(X[30000:]), Y[30000:]).item()
        best.append((s, len(best), m))
        best = sorted(best, key=lambda t: t[:2])[:4]
        del m, opt, ls
