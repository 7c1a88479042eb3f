"""CUDA tensors through torch.multiprocessing's queues: a consumer reads, writes, and sends some of its own."""

from point import say, torch_on_gpu

torch = torch_on_gpu()
SIZES = (1000, 700_000, 3_000_000, 12_000_000)


def consumer(there, back):
    """Doubles what it gets, and answers with twice as much again."""
    kept = []
    for _ in SIZES:
        x = there.get()
        total = int(x.sum())
        x.mul_(2)
        own = x * 2
        torch.cuda.synchronize()
        kept += [x, own]
        back.put((total, own))
    there.get()  # until the other side has read all


def main():
    processes = torch.multiprocessing.get_context("spawn")
    there, back = processes.Queue(), processes.Queue()
    child = processes.Process(target=consumer, args=(there, back))
    child.start()
    before = [torch.arange(n, device="cuda") % 7 for n in SIZES]  # what else lies there
    sent = [torch.arange(n, device="cuda") % 1000 for n in SIZES]
    torch.cuda.synchronize()
    for n, x in zip(SIZES, sent):
        expected = int(x.sum())
        there.put(x)
        total, answer = back.get(timeout=40)
        whole = torch.arange(n, device="cuda") % 1000
        say(numbers=n, read=total == expected, written=bool((x == 2 * whole).all()), answered=bool((answer == 4 * whole).all()))
        del answer
    there.put(None)
    child.join(20)
    say(ended=child.exitcode, untouched=all(bool((b == torch.arange(len(b), device="cuda") % 7).all()) for b in before))


if __name__ == "__main__":
    main()
