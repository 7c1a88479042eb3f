"""Training of a small network in JAX with XLA_PYTHON_CLIENT_ALLOCATOR=platform. Results in hex."""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# What is compiled must not depend on timings.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
from point import say, skip  # noqa: E402

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    skip(f"no JAX: {error}")
try:
    device = jax.devices("gpu")[0]
except RuntimeError as error:
    skip(f"JAX sees no GPU: {error}")

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
jax.config.update("jax_default_matmul_precision", "highest")


def loss_of(parameters, x, wanted):
    hidden = jnp.tanh(x @ parameters["first"] + parameters["shift"])
    return jnp.mean((hidden @ parameters["second"] - wanted) ** 2)


@jax.jit
def step_of(parameters, x, wanted):
    loss, gradient = jax.value_and_grad(loss_of)(parameters, x, wanted)
    return loss, jax.tree_util.tree_map(lambda p, g: p - 0.5 * g, parameters, gradient)


keys = jax.random.split(jax.random.PRNGKey(0), 4)
data = jax.random.normal(keys[0], (2048, 256))
target = jnp.sin(data @ jax.random.normal(keys[1], (256, 32)) / 16)
model = {"first": jax.random.normal(keys[2], (256, 512)) / 16, "shift": jnp.zeros(512),
         "second": jax.random.normal(keys[3], (512, 32)) / 22}
for step in range(STEPS):
    rows = 1024 + 512 * (step % 3)
    loss, model = step_of(model, data[:rows], target[:rows])
    say(step=step, rows=rows, loss=float(loss).hex())
sums = {name: float(jnp.sum(value)).hex() for name, value in sorted(model.items())}
say(**sums, sort=float(jnp.sort(data, axis=1)[:, 0].sum()).hex())
