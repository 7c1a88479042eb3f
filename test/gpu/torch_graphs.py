"""CUDA graphs in PyTorch. usage: torch_graphs.py training|callables|in-place

`training` captures a whole step, `callables` uses make_graphed_callables, `in-place` captures in
global mode a body that allocates nothing. Between replays tensors come and go.
"""

import sys

from point import say, torch_on_gpu

torch = torch_on_gpu()
from torch import nn  # noqa: E402

STEPS = 20


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 512)).cuda()


def batches():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(256, 512, generator=generator) for _ in range(STEPS)]


def churn(step):
    """Work outside the graph, whose memory must never be the graph's."""
    held = [torch.full((1 + step * 4099 + i * 70001,), float(i), device="cuda") for i in range(8)]
    for i, tensor in enumerate(held):
        assert bool((tensor == float(i)).all()), i
    if step % 7 == 0:
        torch.cuda.empty_cache()


def on_side_stream(work):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)


def training():
    net = network()
    x = torch.zeros(256, 512, device="cuda")

    def step():
        for parameter in net.parameters():
            parameter.grad = None
        loss = (net(x) - x).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
        return loss

    on_side_stream(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for i, batch in enumerate(batches()):
        x.copy_(batch)
        graph.replay()
        churn(i)
        say(step=i, loss=loss.item().hex())


def callables():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    graphed = torch.cuda.make_graphed_callables(
        net, (torch.randn(256, 512, device="cuda", requires_grad=False),))
    for i, batch in enumerate(batches()):
        x = batch.cuda()
        optimizer.zero_grad(set_to_none=True)
        loss = (graphed(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        churn(i)
        say(step=i, loss=loss.item().hex())


def in_place():
    a = torch.linspace(-1, 1, 1 << 20, device="cuda")
    b, c = torch.zeros_like(a), torch.ones_like(a)

    def body():
        torch.mul(a, 0.5, out=b)
        torch.add(b, c, out=c)
        c.sin_()
        a.add_(c, alpha=0.25)

    on_side_stream(body)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="global"):
        body()
    for i in range(STEPS):
        graph.replay()
        churn(i)
        say(step=i, a=float(a.double().sum()).hex(), c=float(c.double().sum()).hex())


{"training": training, "callables": callables, "in-place": in_place}[sys.argv[1]]()
