"""Short work through one library of NVIDIA's, by PyTorch. usage: cover_torch.py WORK"""

import sys

from point import say, skip, torch_on_gpu

torch = torch_on_gpu()
nn, F = torch.nn, torch.nn.functional
torch.manual_seed(0)
ROUNDS = 20


def cublas():
    for kind in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        for n in (64, 257, 1024, 4096):
            a, b = (torch.randn(n, n, device="cuda").to(kind) for _ in range(2))
            for _ in range(3):
                c = torch.addmm(a, a, b)
                d = torch.bmm(a[None].expand(3, n, n), b[None].expand(3, n, n))
                e = F.linear(a, b, a[0])  # cuBLASLt with an epilogue
            yield c.sum() + d.sum() + e.sum()
    for _ in range(ROUNDS):
        x = torch.randn(33, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        y = nn.functional.gelu(F.linear(x, torch.randn(11008, 4096, device="cuda", dtype=torch.bfloat16)))
        y.sum().backward()
        yield x.grad.sum()


def cudnn():
    net = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1),
                        nn.ConvTranspose2d(64, 32, 2, 2), nn.Conv2d(32, 32, 3, groups=32)).cuda()
    for number in range(ROUNDS):
        torch.backends.cudnn.benchmark = number >= 10
        for kind in (torch.float32, torch.bfloat16):
            with torch.autocast("cuda", dtype=kind, enabled=kind != torch.float32):
                out = net(torch.randn(8 + number % 3, 3, 96, 96, device="cuda"))
            out.float().sum().backward()
            yield out.sum()
    yield F.conv3d(torch.randn(2, 8, 16, 32, 32, device="cuda"), torch.randn(8, 8, 3, 3, 3, device="cuda")).sum()
    yield F.conv1d(torch.randn(2, 8, 1000, device="cuda"), torch.randn(8, 8, 9, device="cuda")).sum()


def cufft():
    for n in (1000, 1024, 1009, 65536):
        for _ in range(5):
            x = torch.randn(16, n, device="cuda")
            yield torch.fft.irfft(torch.fft.rfft(x)).sum() + torch.fft.fft(x).real.sum()
    for _ in range(5):
        yield torch.fft.fft2(torch.randn(4, 300, 256, device="cuda")).real.sum()
        yield torch.fft.fftn(torch.randn(30, 64, 50, device="cuda")).real.sum()


def cusolver():
    for n in (16, 100, 512):
        for kind in (torch.float32, torch.float64):
            a = torch.randn(n, n, device="cuda", dtype=kind)
            spd = a @ a.T + n * torch.eye(n, device="cuda", dtype=kind)
            yield torch.linalg.cholesky(spd).sum() + torch.linalg.eigvalsh(spd).sum()
            yield torch.linalg.svdvals(a).sum() + torch.linalg.qr(a)[1].diagonal().abs().sum()
            yield torch.linalg.solve(spd, a).sum() + torch.linalg.inv(spd).sum()
            yield torch.linalg.det(spd / n) + torch.linalg.lstsq(spd, a)[0].sum()
            batch = spd.expand(8, n, n).contiguous()
            yield torch.linalg.lu_factor(batch)[0].sum() + torch.linalg.cholesky(batch).sum()


def cusparse():
    for n in (100, 3000):
        for _ in range(5):
            dense = torch.randn(n, n, device="cuda") * (torch.rand(n, n, device="cuda") < 0.02)
            for layout in (dense.to_sparse_csr(), dense.to_sparse_coo()):
                yield (layout @ torch.randn(n, 64, device="cuda")).sum()
            csr = dense.to_sparse_csr()
            yield (csr @ torch.randn(n, device="cuda")).sum() + (csr @ csr).values().sum()
            yield dense.to_sparse_bsr((4, 4) if n % 4 == 0 else (1, 1)).values().sum()


def attention(backend):
    q, k, v = (torch.randn(4, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
               for _ in range(3))
    with nn.attention.sdpa_kernel(backend):
        for causal in (False, True):
            for _ in range(ROUNDS):
                out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                out.sum().backward()
                yield out.sum() + q.grad.sum()


def flash():
    yield from attention(nn.attention.SDPBackend.FLASH_ATTENTION)


def efficient():
    yield from attention(nn.attention.SDPBackend.EFFICIENT_ATTENTION)


def cudnn_attention():
    yield from attention(nn.attention.SDPBackend.CUDNN_ATTENTION)


def lstm():
    for kind in (torch.float32, torch.float16):
        net = nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True).cuda().to(kind)
        gru = nn.GRU(128, 256, 2, batch_first=True).cuda().to(kind)
        for number in range(ROUNDS):
            x = torch.randn(16, 20 + number, 128, device="cuda", dtype=kind, requires_grad=True)
            out = net(x)[0].sum() + gru(x)[0].sum()
            out.backward()
            yield out + x.grad.sum()


def compiled(mode):
    net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    faster = torch.compile(net, mode=mode)
    for number in range(ROUNDS):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(64, 256, device="cuda")
        loss = (faster(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach().clone()


def triton():
    yield from compiled("default")


def graphs():
    yield from compiled("reduce-overhead")


def copies():
    pinned = torch.randn(1 << 20).pin_memory()
    for number in range(ROUNDS):
        there = pinned.to("cuda", non_blocking=True)
        back = there.cpu()
        wide = torch.zeros(1000, 1003, device="cuda")
        wide[:, :500].copy_(torch.randn(1000, 500))  # with a pitch
        other = torch.empty_like(there).copy_(there)
        yield other.sum() + back.sum().item() + wide.sum() + torch.full((1 << 18,), number, device="cuda").sum()


WORK = {work.__name__: work for work in (cublas, cudnn, cufft, cusolver, cusparse, flash, efficient,
                                         cudnn_attention, lstm, triton, graphs, copies)}

if __name__ == "__main__":
    if sys.argv[1] not in WORK:
        skip(f"no work {sys.argv[1]}")
    values = [float(value) for value in WORK[sys.argv[1]]()]
    torch.cuda.synchronize()
    say(work=sys.argv[1], steps=len(values), finite=all(value == value for value in values))
