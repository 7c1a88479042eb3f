"""Programs whose blocks grow, or are gathered from others: the ones of 24 by a fifth pair of hands that kept most."""

import collections
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step
from serving_common import BF, _load

LLM_TOKENS = 48_000          # in all requests under way, with what they may still write
IVF_MOST = 4_000_000         # vectors in all lists
REPLAY_KEPT = 1_000_000_000  # bytes of episodes


def size_of(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def skewed(low, high, power=2.5):
    """A length between low and high, mostly near low."""
    return low + int((high - low) * R.random() ** power)


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
        return y.to(x.dtype) * self.weight


def angles(pos, hd, dtype):
    """cos and sin for positions of any shape: ..., hd."""
    rate = 10000.0 ** (-torch.arange(0, hd, 2, device=pos.device, dtype=torch.float32) / hd)
    a = pos[..., None].float() * rate
    a = torch.cat([a, a], -1)
    return a.cos().to(dtype), a.sin().to(dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def later(n, s, device):
    """What n tokens at the end of s may see."""
    return torch.ones(n, s, dtype=torch.bool, device=device).tril(s - n)


def nucleus(logits, p=0.9, temperature=0.8):
    """Samples a token for each row among the most probable ones that make up p."""
    v, i = torch.sort(torch.softmax(logits.float() / temperature, -1), -1, descending=True)
    v = v.masked_fill(v.cumsum(-1) - v > p, 0.0)
    return i.gather(-1, torch.multinomial(v / v.sum(-1, keepdim=True), 1)).squeeze(-1)


class Block(nn.Module):
    def __init__(self, d, heads, kv, ff):
        super().__init__()
        self.heads, self.kv, self.hd = heads, kv, d // heads
        self.n1, self.n2 = RMSNorm(d), RMSNorm(d)
        self.qkv = nn.Linear(d, (heads + 2 * kv) * self.hd, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * ff, bias=False), nn.Linear(ff, d, bias=False)

    def project(self, x, cos, sin):
        """x: b, n, d; cos, sin: b or 1, 1, n, hd. Gives b, heads or kv, n, hd."""
        b, n, _ = x.shape
        y = self.qkv(self.n1(x)).view(b, n, self.heads + 2 * self.kv, self.hd).transpose(1, 2)
        q, k, v = y.split([self.heads, self.kv, self.kv], 1)
        return rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype), v

    def look(self, q, k, v, mask=None, causal=False):
        """Attention alone, as b, n, d."""
        if self.heads != self.kv:
            k, v = k.repeat_interleave(self.heads // self.kv, 1), v.repeat_interleave(self.heads // self.kv, 1)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return a.transpose(1, 2).reshape(q.shape[0], q.shape[2], self.heads * self.hd)

    def feed(self, x):
        g, u = self.up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(g) * u)


class Decoder(nn.Module):
    block = Block

    def __init__(self, layers, d, heads, kv, ff, vocab):
        super().__init__()
        self.hd, self.vocab = d // heads, vocab
        self.emb = nn.Embedding(vocab, d)
        nn.init.normal_(self.emb.weight, std=0.02)
        self.blocks = nn.ModuleList([self.block(d, heads, kv, ff) for _ in range(layers)])
        self.norm = RMSNorm(d)

    def head(self, x):
        return F.linear(self.norm(x), self.emb.weight)

    def forward(self, tok, cache=None):
        """Hidden states before the head and the cache, a (k, v) for each layer, longer by these tokens."""
        past = 0 if cache is None else cache[0][0].shape[2]
        n = tok.shape[1]
        cos, sin = angles(torch.arange(past, past + n, device=tok.device)[None, None], self.hd, self.emb.weight.dtype)
        mask = later(n, past + n, tok.device) if past and n > 1 else None
        x, new = self.emb(tok), []
        for i, f in enumerate(self.blocks):
            q, k, v = f.project(x, cos, sin)
            if cache is not None:
                k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
            new.append((k, v))
            x = f.feed(x + f.o(f.look(q, k, v, mask, not past and n > 1)))
        return x, new


@prog
def llm_paged_prefill_growing_cache():
    """A language model's server: a prompt is read page by page, its pages then joined to one cache for each layer, which grows by
    torch.cat with every token; linear layers run for all requests together, attention for each alone. Requests come and go."""
    page, layers = 512, 12
    m = _load(lambda: Decoder(layers, 1024, 16, 8, 2816, 32000), BF)

    class Request:
        def __init__(self):
            self.prompt = torch.randint(0, m.vocab, (skewed(32, 7000),))
            self.left = skewed(12, 400)
            self.need = self.prompt.numel() + self.left
            self.length, self.written, self.last = 0, [], None
            self.k, self.v = [None] * layers, [None] * layers

    def prefill(r):
        pages = [([], []) for _ in range(layers)]
        for at in range(0, r.prompt.numel(), page):
            tok = r.prompt[at:at + page].to(dev)[None]
            n = tok.shape[1]
            cos, sin = angles(torch.arange(at, at + n, device=dev)[None, None], m.hd, BF)
            mask, x = later(n, at + n, dev), m.emb(tok)
            for f, (ks, vs) in zip(m.blocks, pages):
                q, k, v = f.project(x, cos, sin)
                ks.append(k.contiguous())
                vs.append(v.contiguous())
                x = f.feed(x + f.o(f.look(q, torch.cat(ks, 2), torch.cat(vs, 2), mask)))
        for i, (ks, vs) in enumerate(pages):
            r.k[i], r.v[i] = torch.cat(ks, 2), torch.cat(vs, 2)
            ks.clear()
            vs.clear()
        r.length = r.prompt.numel()
        r.last = nucleus(m.head(x[:, -1]))

    def decode(active):
        tok = torch.cat([r.last for r in active])
        pos = torch.tensor([r.length for r in active], device=dev)
        cos, sin = angles(pos[:, None, None], m.hd, BF)
        x = m.emb(tok)[:, None]
        for i, f in enumerate(m.blocks):
            q, k, v = f.project(x, cos, sin)
            seen = []
            for j, r in enumerate(active):
                r.k[i] = torch.cat([r.k[i], k[j:j + 1]], 2)
                r.v[i] = torch.cat([r.v[i], v[j:j + 1]], 2)
                seen.append(f.look(q[j:j + 1], r.k[i], r.v[i]))
            x = f.feed(x + f.o(torch.cat(seen)))
        new = nucleus(m.head(x[:, 0]))
        for j, (r, t) in enumerate(zip(active, new.tolist())):
            r.last = new[j:j + 1]
            r.length += 1
            r.left -= 1
            r.written.append(t)

    active, waiting = [], [Request() for _ in range(6)]
    with torch.inference_mode():
        for _ in loop(100000):
            if R.random() < 0.12:
                waiting.append(Request())
            if not waiting and not active:
                waiting.append(Request())
            while waiting and len(active) < 10 and sum(r.need for r in active) + waiting[0].need <= LLM_TOKENS:
                r = waiting.pop(0)
                prefill(r)
                active.append(r)
            decode(active)
            active = [r for r in active if r.left > 0]


@prog
def ivf_lists_grow():
    """Vector search with inverted lists: each list is an array with room to spare that is copied to a larger one when full;
    vectors come in batches, old ones are dropped and the lists packed, queries look at some lists each."""
    d, lists = 192, 400
    kinds = torch.randn(3000, d, device=dev)

    def make(n, drift):
        which = (torch.rand(n, device=dev) ** 2 * 1500 + drift).long() % 3000
        x = kinds[which] + 0.5 * torch.randn(n, d, device=dev)
        return x / x.norm(dim=1, keepdim=True)

    x = make(40_000, 0)
    cent = x[torch.randperm(x.shape[0], device=dev)[:lists]]
    for _ in range(8):
        near = (x @ cent.t()).argmax(1)
        total = torch.zeros_like(cent).index_add_(0, near, x)
        count = torch.bincount(near, minlength=lists)
        cent = torch.where(count[:, None] > 0, total, cent)
        cent = cent / cent.norm(dim=1, keepdim=True)
    del x, near, total, count

    vecs = [torch.empty(0, d, dtype=torch.float16, device=dev) for _ in range(lists)]
    ids = [torch.empty(0, dtype=torch.long, device=dev) for _ in range(lists)]
    used, first = [0] * lists, 0
    last = 0

    def add(x):
        nonlocal last
        near = torch.cat([(c @ cent.t()).argmax(1) for c in x.split(65536)])
        order = near.argsort()
        x, name = x[order].half(), order + last
        last += x.shape[0]
        many = torch.bincount(near, minlength=lists).tolist()
        for l, (v, k) in enumerate(zip(x.split(many), name.split(many))):
            n, m = used[l], many[l]
            if not m:
                continue
            if n + m > vecs[l].shape[0]:
                cap = max(n + m, vecs[l].shape[0] * 3 // 2, 64)
                v2, k2 = torch.empty(cap, d, dtype=torch.float16, device=dev), torch.empty(cap, dtype=torch.long, device=dev)
                v2[:n], k2[:n] = vecs[l][:n], ids[l][:n]
                vecs[l], ids[l] = v2, k2
            vecs[l][n:n + m], ids[l][n:n + m] = v, k
            used[l] = n + m

    def forget(share):
        nonlocal first
        first += int((last - first) * share)
        for l in range(lists):
            keep = ids[l][:used[l]] >= first
            vecs[l], ids[l] = vecs[l][:used[l]][keep], ids[l][:used[l]][keep]
            used[l] = vecs[l].shape[0]

    def search(q, k, probes):
        n = q.shape[0]
        where = (q @ cent.t()).topk(probes, 1).indices
        flat, order = where.flatten().sort()
        found, many = torch.unique_consecutive(flat, return_counts=True)
        score = torch.full((n * probes, k), -math.inf, device=dev)
        name = torch.full((n * probes, k), -1, dtype=torch.long, device=dev)
        half = q.half()
        for l, slot in zip(found.tolist(), order.split(many.tolist())):
            if not used[l]:
                continue
            near = half[slot // probes] @ vecs[l][:used[l]].t()
            s, i = near.float().topk(min(k, used[l]), 1)
            score[slot, :s.shape[1]] = s
            name[slot, :s.shape[1]] = ids[l][:used[l]][i]
        s, i = score.view(n, -1).topk(k, 1)
        return s, name.view(n, -1).gather(1, i)

    add(make(300_000, 0))
    for i in loop(100000):
        add(make(skewed(2000, 150_000), i * 3))
        for _ in range(R.randint(1, 4)):
            s, name = search(make(skewed(1, 600), i * 3), R.choice([10, 20, 100]), R.choice([4, 8, 16]))
            s.cpu(), name.cpu()
        if sum(used) > IVF_MOST:
            forget(R.uniform(0.2, 0.5))


@prog
def sac_pixels_episode_replay():
    """Soft actor-critic from pixels: 16 environments step together, each episode is gathered frame by frame and stacked at its end;
    the oldest episodes go when the replay is full. Batches take some moments each out of some episodes, shifted a little."""
    envs, act, state = 16, 6, 64
    Episode = collections.namedtuple("Episode", "obs act rew")

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            ls, c = [], 9
            for i in range(4):
                ls += [nn.Conv2d(c, 32, 3, 2 if i == 0 else 1), nn.ReLU()]
                c = 32
            self.conv, self.out = nn.Sequential(*ls), nn.Sequential(nn.Linear(32 * 35 * 35, 50), nn.LayerNorm(50), nn.Tanh())

        def forward(self, x):
            return self.out(self.conv(x.float() / 255 - 0.5).flatten(1))

    def mlp(i, o):
        return nn.Sequential(nn.Linear(i, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, o))

    enc, actor = Encoder().to(dev), mlp(50, 2 * act).to(dev)
    critic = nn.ModuleList([mlp(50 + act, 1), mlp(50 + act, 1)]).to(dev)
    enc_t, critic_t = copy.deepcopy(enc).requires_grad_(False), copy.deepcopy(critic).requires_grad_(False)
    alpha = torch.tensor(-2.0, device=dev, requires_grad=True)
    opt_c = torch.optim.Adam([*enc.parameters(), *critic.parameters()], 1e-4)
    opt_a, opt_l = torch.optim.Adam(actor.parameters(), 1e-4), torch.optim.Adam([alpha], 1e-4)

    def sample(h):
        mean, logstd = actor(h).chunk(2, -1)
        std = (-5 + 3.5 * (logstd.tanh() + 1)).exp()
        u = mean + std * torch.randn_like(mean)
        a = u.tanh()
        logp = -0.5 * ((u - mean) / std) ** 2 - std.log() - torch.log(1 - a ** 2 + 1e-6)
        return a, logp.sum(-1, keepdim=True)

    def twice(c, h, a):
        x = torch.cat([h, a], -1)
        return c[0](x), c[1](x)

    def shift(x):
        n, pad = x.shape[0], 4
        x = F.pad(x.float(), (pad,) * 4, mode="replicate")
        at = torch.linspace(-1, 1, 92, device=dev)[:84] + 1.0 / 92
        grid = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1)[None].expand(n, -1, -1, -1)
        move = torch.randint(0, 2 * pad + 1, (n, 1, 1, 2), device=dev).float() * 2 / 92
        return F.grid_sample(x, grid + move, padding_mode="zeros", align_corners=False)

    A, B = torch.randn(state, state, device=dev) * 0.12, torch.randn(act, state, device=dev) * 0.5
    paint = torch.randn(state, 3 * 84 * 84, device=dev) * 0.15

    def render(s):
        return ((s @ paint).tanh().add(1).mul(127.5)).to(torch.uint8).view(-1, 3, 84, 84)

    replay, held = collections.deque(), 0

    def add(obs, acts, rews):
        nonlocal held
        e = Episode(torch.stack(obs), torch.stack(acts), torch.stack(rews))
        replay.append(e)
        held += size_of(*e)
        while held > REPLAY_KEPT:
            held -= size_of(*replay.popleft())

    for _ in range(20):
        n = R.randint(40, 400)
        e = Episode(torch.randint(0, 256, (n + 1, 9, 84, 84), dtype=torch.uint8).to(dev), torch.rand(n, act, device=dev) * 2 - 1,
                    torch.randn(n, device=dev))
        replay.append(e)
        held += size_of(*e)

    s = torch.randn(envs, state, device=dev)
    frames = collections.deque([render(s)] * 3, maxlen=3)
    length, end = [0] * envs, [skewed(30, 800, 1.5) for _ in range(envs)]
    obs = torch.cat(list(frames), 1)
    now = [([obs[i].clone()], [], []) for i in range(envs)]
    for _ in loop(100000):
        for _k in range(8):
            with torch.no_grad():
                a, _p = sample(enc(obs))
                s = torch.tanh(s @ A + a @ B + 0.1 * torch.randn_like(s))
                r = s[:, 0] - 0.1 * a.square().mean(1)
            frames.append(render(s))
            obs = torch.cat(list(frames), 1)
            for i in range(envs):
                o, acts, rews = now[i]
                o.append(obs[i].clone())
                acts.append(a[i].clone())
                rews.append(r[i].clone())
                length[i] += 1
                if length[i] == end[i]:
                    add(*now[i])
                    s[i] = torch.randn(state, device=dev)
                    length[i], end[i] = 0, skewed(30, 800, 1.5)
                    now[i] = ([obs[i].clone()], [], [])
        for _k in range(2):
            took = []
            for e in R.choices(replay, weights=[e.rew.shape[0] for e in replay], k=32):
                t = torch.randint(0, e.rew.shape[0], (8,), device=dev)
                took.append((e.obs[t], e.act[t], e.rew[t], e.obs[t + 1]))
            o, a, r, o2 = (torch.cat(v) for v in zip(*took))
            o, o2 = shift(o), shift(o2)
            with torch.no_grad():
                a2, p2 = sample(enc(o2))
                q1, q2 = twice(critic_t, enc_t(o2), a2)
                y = r[:, None] + 0.99 * (torch.min(q1, q2) - alpha.exp() * p2)
            h = enc(o)
            q1, q2 = twice(critic, h, a)
            step(opt_c, F.mse_loss(q1, y) + F.mse_loss(q2, y))
            h = h.detach()
            a, p = sample(h)
            q1, q2 = twice(critic, h, a)
            step(opt_a, (alpha.exp().detach() * p - torch.min(q1, q2)).mean())
            step(opt_l, -(alpha.exp() * (p.detach() - act)).mean())
            with torch.no_grad():
                for m, t in ((enc, enc_t), (critic, critic_t)):
                    torch._foreach_lerp_(list(t.parameters()), list(m.parameters()), 0.01)
