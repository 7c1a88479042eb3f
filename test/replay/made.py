"""Made traces by name, as the tests and the table of figures use them."""

import caches
import training
import workloads

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

ORDINARY = workloads.ALL  # as many programs are

# Sizes that do not come again, and blocks that outlive theirs.
VARIED = {"features": workloads.features, "replaced": workloads.replaced}
RESULTS = {f"results_{layers}_{wide}": lambda layers=layers, wide=wide: workloads.results(layers, wide) for layers, wide in ((1, 1), (1, 4), (12, 4))}
PROMPTS = {f"prompts_{layers}_{gib}_{seed}": lambda layers=layers, gib=gib, seed=seed: workloads.kept_prompts(layers, gib * GIB, seed=seed)
           for layers, gib, seed in ((16, 6, 1), (16, 6, 3), (32, 12, 2))}
TOKENS = {f"tokens_{seed}": lambda seed=seed: caches.tokens(seed=seed) for seed in range(300, 304)}

# Language models in training whose first step leaves what later ones keep.
FIRST_STEPS = {
    "first_step_width": lambda: training.language_model(width=2 * MIB),
    "first_step_layers": lambda: training.language_model(layers=24),
    "first_step_short": lambda: training.language_model(shortest=0.3, steps=14, seed=2),
    "first_step_long": lambda: training.language_model(shortest=0.7, steps=14),
}

# Many blocks of about a granule (2 MiB), which grow in turn or make room at random.
REPLACED = {
    **{f"chat_{seed}": lambda seed=seed: workloads.chat(seed) for seed in range(8)},
    **{f"items_{kib}": lambda kib=kib: caches.items(kib * KIB) for kib in (410, 1024, 3072)},
    **{f"outputs_{seed}": lambda seed=seed: caches.outputs(seed=seed) for seed in range(1, 9)},
}

ALL = {**ORDINARY, **VARIED, **RESULTS, **PROMPTS, **TOKENS, **FIRST_STEPS, **REPLACED}


def language_models():
    """A hundred of 0.3 to 60 GiB."""
    return (training.any_language_model(seed) for seed in range(100))
