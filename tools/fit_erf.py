#!/usr/bin/env python3
"""Fits the approximations of src/exec/cpu/simd/vector_math-inl.h and prints their coefficients with
the error each one is good for.

Minimax fits by Lawson's reweighted least squares in double; a rational one is linearised around its
last denominator. Needs numpy only. With t = x^2, both functions of gelu are smooth and even in x,
so short rationals in t do:
  gelu(x)  = x/2 + t R(t),   R(t) = erf(x / sqrt 2) / (2 x)                    for |x| < 5.4, beyond
      it t R(t) = |x| / 2
  gelu(x)  = x (1/2 + u R(u^2)) with u = x cut off at +-4.5, for results that are rounded to bf16
  gelu'(x) = 1/2 + x S(t),   S(t) = erf(x / sqrt 2) / (2 x) + exp(-t/2) / sqrt(2 pi)    for |x| < 6,
      beyond it x S(t) = +-1/2
  exp(r) for |r| <= ln(2) / 2, where exp(x) = 2^n exp(r)
"""
import math

import numpy as np


def half_erf(t):
    x = np.sqrt(t)
    return np.vectorize(math.erf)(x / math.sqrt(2)) / (2 * x)


def slope(t):
    return half_erf(t) + np.exp(-t / 2) / math.sqrt(2 * math.pi)


def minimax(function, weight, low, high, above, below=0, nodes=4000, rounds=500):
    """Coefficients, lowest first, of the P/Q of these degrees that minimises the largest weighted
    error; and that error."""
    x = (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
    scale = max(abs(low), abs(high))
    powers = np.vander(x / scale, max(above, below) + 1, increasing=True)
    values, weights = function(x), weight(x)
    basis = np.hstack([powers[:, : above + 1], -values[:, None] * powers[:, 1 : below + 1]])
    importance, denominator = np.full(nodes, 1 / nodes), np.ones(nodes)
    best = (math.inf, None, None)
    for _ in range(rounds):
        row = np.sqrt(importance) * weights / np.abs(denominator)
        fitted = np.linalg.lstsq(basis * row[:, None], values * row, rcond=1e-18)[0]
        p, q = fitted[: above + 1], np.concatenate([[1.0], fitted[above + 1 :]])
        denominator = powers[:, : below + 1] @ q
        error = np.abs((powers[:, : above + 1] @ p / denominator - values) * weights)
        if error.max() < best[0]:
            best = (error.max(), p / scale ** np.arange(above + 1),
                    q / scale ** np.arange(below + 1))
        importance *= np.sqrt(error + 1e-30)
        importance /= importance.sum()
    return best


def show(name, error, p, q):
    print(f"{name}: error {error:.1e}")
    for label, coefficients in (("P", p), ("Q", q)):
        if len(coefficients) > 1:
            print(f"  {label}  " + ", ".join(f"{c:.9e}f" for c in coefficients))


def main():
    show("R, relative", *minimax(half_erf, lambda t: 1 / half_erf(t), 1e-6, 5.4**2, 5, 5))
    show("gelu for bf16, absolute", *minimax(half_erf, lambda t: t, 1e-6, 4.5**2, 3, 3))
    show("x S, absolute", *minimax(slope, np.sqrt, 1e-6, 6.0**2, 7, 5))
    show("exp, relative",
         *minimax(np.exp, lambda r: np.exp(-r), -math.log(2) / 2, math.log(2) / 2, 6))


if __name__ == "__main__":
    main()
