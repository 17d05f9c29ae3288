#!/usr/bin/env python3
"""Fits the polynomials of src/exec/cpu/vector_math-inl.h and prints them as C++ constants, with the error each one is good for.

All are minimax fits by Lawson's reweighted least squares in double; only numpy is needed. For a = min(|x|, 8):
  tail(a)   log2 of the normal tail, so that Phi(-a) = 2^tail(a) and gelu(x) = max(x, 0) - a * Phi(-a)
  slope(a)  1 - a * phi(a) / Phi(-a), so that gelu'(-a) = Phi(-a) * slope(a) and gelu'(a) = 1 - gelu'(-a)
  exp2(f)   2^f on [-1/2, 1/2]
"""
import math

import numpy as np

LIMIT = 8.0


def normal_tail(a):
    return np.vectorize(lambda v: 0.5 * math.erfc(v / math.sqrt(2)))(a)


def density(a):
    return np.exp(-a * a / 2) / math.sqrt(2 * math.pi)


def minimax(function, weight, low, high, degree, nodes=4000, rounds=1500):
    """Coefficients, lowest first, of the polynomial that minimises the largest weighted error, and that error."""
    x = (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
    scale = max(abs(low), abs(high))
    basis = np.vander(x / scale, degree + 1, increasing=True)
    values, weights = function(x), weight(x)
    importance = np.full(nodes, 1 / nodes)
    best = (math.inf, None)
    for _ in range(rounds):
        row = np.sqrt(importance) * weights
        fitted = np.linalg.lstsq(basis * row[:, None], values * row, rcond=1e-18)[0]
        error = np.abs((basis @ fitted - values) * weights)
        if error.max() < best[0]:
            best = (error.max(), fitted / scale ** np.arange(degree + 1))
        importance *= np.sqrt(error + 1e-30)
        importance /= importance.sum()
    return best[1], best[0]


def show(name, coefficients, error):
    print(f"{name}: weighted error {error:.1e}")
    print("  " + ", ".join(f"{c:.9e}f" for c in coefficients))


def main():
    # Absolute errors of gelu and gelu' where they matter, a relative one of about 2e-4 far out in the tail.
    far = 1e-4
    show("tail", *minimax(lambda a: np.log2(normal_tail(a)),
                          lambda a: math.log(2) * np.maximum(a * normal_tail(a) + np.abs(normal_tail(a) - a * density(a)), far),
                          0, LIMIT, 10))
    show("slope", *minimax(lambda a: 1 - a * density(a) / normal_tail(a), lambda a: np.maximum(normal_tail(a), far / 100), 0, LIMIT, 10))
    show("exp2", *minimax(np.exp2, lambda f: np.exp2(-f), -0.5, 0.5, 6))


if __name__ == "__main__":
    main()
