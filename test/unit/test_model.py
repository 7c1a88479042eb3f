"""The allocator against plain models of its rules. Ordinary segments: addresses and every statistic after every step. Mapped memory:
whatever lies where, all that must be true of it."""

import os
import pathlib
import subprocess
import sys

from hypothesis import Phase, example, given, settings, strategies as st

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import examples  # noqa: E402, F401  (settings)
from model import MIB, Model  # noqa: E402
from model_mapped import Mapped  # noqa: E402

DRIVER = os.environ["CACHALOT_LINE_DRIVER"].split()
EXAMPLES = int(os.environ.get("CACHALOT_TEST_EXAMPLES", "600"))
PHASES = [Phase.generate] if "CACHALOT_TEST_FIRST" in os.environ else list(Phase)  # the first that fails will do

# Sizes around every threshold, and many equal ones, so that ties and exact fits are common.
EDGES = [1, 512, 513, 1024, MIB - 512, MIB, MIB + 1, 2 * MIB, 4 * MIB, 5 * MIB, 9 * MIB, 10 * MIB - 512, 10 * MIB,
         11 * MIB, 19 * MIB, 20 * MIB, 21 * MIB, 30 * MIB, 40 * MIB, 41 * MIB, 64 * MIB]
SIZES = st.one_of(st.sampled_from(EDGES), st.integers(0, 4096), st.integers(0, 3 * MIB), st.integers(0, 70 * MIB))
STEPS = st.lists(st.one_of(st.tuples(st.just("m"), SIZES), st.tuples(st.just("m"), SIZES),
                           st.tuples(st.just("f"), st.integers(0, 1000)),
                           st.tuples(st.just("f"), st.integers(0, 1000)), st.tuples(st.just("e"), st.just(0))),
                 min_size=10, max_size=90)
CONFS = st.fixed_dictionaries({}, optional={
    "max_split": st.sampled_from([20, 21, 32, 40]), "rounding": st.sampled_from([20, 24]),
    "large": st.sampled_from([2, 4, 12, 20, 40]), "divisions": st.sampled_from([1, 2, 4, 8]),
    "limit": st.sampled_from([64, 100])})
NAMES = {"max_split": "max_split_size_mb", "rounding": "max_non_split_rounding_mb", "large": "large_segment_size_mb",
         "divisions": "roundup_power2_divisions", "limit": "memory_limit_mb"}


def concrete(steps, model):
    """The steps as lines, with what the model answers: frees choose among what is held at that point."""
    held, lines, answers, mallocs = [], [], [], 0
    for op, n in steps:
        if op == "m":
            code, address = model.malloc(n)
            if code == 0:
                held.append((mallocs, address))
            mallocs += 1
            lines.append(f"m {n}")
        elif op == "f":
            if not held:
                continue
            number, address = held.pop(n % len(held))
            code, address = model.free(address)
            lines.append(f"f {number}")
        else:
            code, address = model.empty()
            lines.append("e")
        answers.append([code, address, *model.statistics()])
    return lines, answers


def answers_of(conf, capacity, lines):
    script = "\n".join([f"options {conf}", f"capacity {capacity}", *lines, ""])
    try:
        out = subprocess.run(DRIVER, input=script.encode(), stdout=subprocess.PIPE, check=True, timeout=15).stdout
    except subprocess.TimeoutExpired as late:
        raise AssertionError("it does not end") from late
    return [list(map(int, line.split())) for line in out.decode().splitlines()]


@settings(max_examples=EXAMPLES)
@given(steps=STEPS, conf=CONFS, capacity=st.sampled_from([1 << 62, 200 * MIB, 90 * MIB]))
def test_allocator_follows_the_model(steps, conf, capacity):
    model = Model(capacity, **{k: v if k == "divisions" else v * MIB for k, v in conf.items()})
    lines, answers = concrete(steps, model)
    text = ",".join(f"{NAMES[k]}:{v}" for k, v in conf.items())
    got = answers_of(text, capacity, lines)
    for line, mine, theirs in zip(lines, answers, got):
        assert mine == theirs, line
    assert len(got) == len(answers)


FIRST_CALL = 8  # FAKE_CREATE; to FAKE_RELEASE
MOVES = st.lists(st.tuples(st.sampled_from("m" * 11 + "f" * 10 + "erox"), st.integers(0, 1 << 22)), min_size=60, max_size=240)


def size_of(n):
    """Of half of the requests some MiB to the byte, of an eighth small ones, of the others anything up to 42 MiB."""
    n, kind = divmod(n, 8)
    return EDGES[n % len(EDGES)] if kind == 0 else (2 + n % 30) * MIB if kind < 5 else 1 + n % MIB if kind == 7 else MIB + 1 + n * 80


# Small blocks that lie among large ones take room natively, too.
AMONG_LARGE = [
    ("m", 1279939), ("m", 1994059), ("f", 1000735), ("m", 2720717), ("m", 263170), ("m", 2183150), ("f", 1318721), ("f", 2987855), ("f", 1071290),
    ("m", 3996864), ("m", 0), ("m", 1556810), ("m", 4153147), ("f", 2438490), ("m", 1796167), ("m", 2932832), ("m", 1744678), ("m", 712373),
]


@settings(max_examples=EXAMPLES // 5, phases=PHASES)
@example(steps=AMONG_LARGE, handle=2, capacity=200, limit=60, failing=False)
@given(steps=MOVES, handle=st.sampled_from([2, 4, 14]), capacity=st.sampled_from([64, 90, 200]), limit=st.sampled_from([None, 60, 100]),
       failing=st.booleans())
def test_mapped_memory_keeps_its_rules(steps, handle, capacity, limit, failing):
    model = Mapped(capacity * MIB, handle * MIB, limit and limit * MIB)
    held, mallocs, lines, operations = [], 0, [], []
    for op, n in steps:
        if (op == "f" and not held) or (op == "x" and not failing):
            continue
        if op == "m":
            n = size_of(n)
            held.append(mallocs)
            mallocs += 1
        elif op == "f":
            n = held.pop(n % len(held))
        elif op == "o":
            n = n % 100 * MIB
        lines.append(f"x {FIRST_CALL + n % 5} {1 + n // 5 % 9}" if op == "x" else f"{op} {n}")
        operations.append((op, n))
    conf = f"expandable_segments:True,large_segment_size_mb:{handle}" + (f",memory_limit_mb:{limit}" if limit else "")
    got = answers_of(conf, capacity * MIB, lines)
    assert len(got) == len(operations)
    for operation, numbers in zip(operations, got):
        model.follow(*operation, numbers)
