"""Operations in the products of a program, and how many per second the machine can do."""

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from common import Contender
from jax.extend.core import jaxprs_in_params
from timing import milliseconds, ratio

SIDE = 1024
PRODUCT = f"{SIDE}x{SIDE} product"


def matrix_product(config: Any = None, name: str = PRODUCT, steps: int = 20) -> Contender:
    """The speed of the machine: products of two square matrices."""
    a, b = jax.random.normal(jax.random.key(0), (2, SIDE, SIDE))
    product = jax.jit(jnp.matmul)

    def run(steps: int) -> None:
        for _ in range(steps):
            product(a, b).block_until_ready()

    return Contender(name, run, steps, role="reference")


def speed(products: int, name: str, times: list[dict[str, float]]) -> dict[str, Any]:
    """Operations per step, per second, and relative to the matrix product."""
    machine = 2 * SIDE**3
    return {
        "contender": name,
        "gflop_in_products": products / 1e9,
        "gflops": products / milliseconds(times, name) / 1e6,
        "gflops_of_matrix_product": machine / milliseconds(times, PRODUCT) / 1e6,
        "fraction_of_matrix_product": products / machine / ratio(times, name, PRODUCT),
    }


def product_flops(jaxpr: Any) -> int:
    """Of all matrix products and convolutions of a program, as often as its loops run."""
    total = 0
    for equation in jaxpr.eqns:
        often = equation.params["length"] if equation.primitive.name == "scan" else 1
        inside = sum(map(product_flops, jaxprs_in_params(equation.params)))
        total += own_flops(equation) + often * inside
    return total


def own_flops(equation: Any) -> int:
    """2 m n k of a matrix product; a convolution's k is what one position of a kernel sees."""
    name = equation.primitive.name
    if name not in ("dot_general", "y_of", "x_of", "W_of"):
        return 0
    left, right, result = (v.aval for v in (*equation.invars, *equation.outvars))
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2 * result.size * prod(left.shape[i] for i in contracted)
    images = {"y_of": result, "x_of": left, "W_of": right}[name]
    kernels = result if name == "W_of" else right
    return 2 * images.size * prod(kernels.shape[1:])
