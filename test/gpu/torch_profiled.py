"""A small training under PyTorch's profiler: prints what it saw that is no time."""

import sys

try:
    import torch
except ImportError as error:
    print(f"skip: {error}")
    sys.exit(77)


def step(model, optimizer, images):
    optimizer.zero_grad(set_to_none=True)
    loss = model(images).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(16 * 30 * 30, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(8, 3, 32, 32, device="cuda")
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    step(model, optimizer, images)
    with torch.profiler.profile(activities=kinds, profile_memory=True) as profiler:
        losses = [step(model, optimizer, images) for _ in range(5)]
    print("losses", losses)
    rows = sorted((row.key, row.count) for row in profiler.key_averages())
    for key, count in rows:
        if not key.startswith("cuda"):  # calls of the run-time: waits may be polled
            print(f"{count} × {key}")
    print(len(rows) > 20 and any("gemm" in key.lower() for key, _ in rows))


main()
