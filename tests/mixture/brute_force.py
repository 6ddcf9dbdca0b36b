"""The mixture written out point by point with plain loops, numpy and scipy: nothing of dbull is used.

Everything is a plain array; `prior` is (alpha, m0, beta0, nu0, W0^-1).
"""

import math

import numpy as np
from scipy import special, stats


def global_step(z, var, r, prior):
    """Posterior parameters in Bishop's form (10.58-10.63), one component at a time."""
    alpha, m0, beta0, nu0, w0_inv = prior
    out = []
    for k in range(r.shape[1]):
        n_k = r[:, k].sum()
        if n_k > 0:
            zbar = sum(r[n, k] * z[n] for n in range(len(z))) / n_k
            spread = sum(
                r[n, k] * (np.outer(z[n] - zbar, z[n] - zbar) + np.diag(var[n])) for n in range(len(z))
            )
        else:
            zbar, spread = m0, np.zeros_like(w0_inv)
        pull = beta0 * n_k / (beta0 + n_k) * np.outer(zbar - m0, zbar - m0)
        out.append(
            {
                "on": 1 + n_k,
                "off": alpha + r[:, k + 1 :].sum(),
                "m": (beta0 * m0 + n_k * zbar) / (beta0 + n_k),
                "beta": beta0 + n_k,
                "nu": nu0 + n_k,
                "B": w0_inv + spread + pull,
            }
        )
    return out


def expected_log_weight(q, k):
    """E log pi_k from the moments of the logarithm of Beta variables."""
    total = special.digamma(q[k]["on"]) - special.digamma(q[k]["on"] + q[k]["off"])
    for earlier in q[:k]:
        total += special.digamma(earlier["off"]) - special.digamma(earlier["on"] + earlier["off"])
    return total


def expected_log_det(c):
    """E log |precision| of one component."""
    D = len(c["m"])
    digammas = sum(special.digamma((c["nu"] + 1 - i) / 2) for i in range(1, D + 1))
    return digammas + D * math.log(2) - np.linalg.slogdet(c["B"])[1]


def expected_log_likelihood(c, z, var):
    """E log N(z' | mean, precision^-1) over the component and over z' ~ N(z, diag var)."""
    D = len(z)
    w = np.linalg.inv(c["B"])
    square = (z - c["m"]) @ w @ (z - c["m"]) + np.trace(w @ np.diag(var))
    return 0.5 * (expected_log_det(c) - D / c["beta"] - c["nu"] * square - D * math.log(2 * math.pi))


def elbo_terms(z, var, r, q, prior):
    """Every expectation of the bound, in sums over single points; a dictionary of terms."""
    alpha, m0, beta0, nu0, w0_inv = prior
    D, K = z.shape[1], r.shape[1]
    terms = dict.fromkeys(("likelihood", "assignment", "entropy", "sticks", "components"), 0.0)
    for n in range(len(z)):
        for k in range(K):
            if r[n, k] > 0:
                terms["likelihood"] += r[n, k] * expected_log_likelihood(q[k], z[n], var[n])
                terms["assignment"] += r[n, k] * expected_log_weight(q, k)
                terms["entropy"] -= r[n, k] * math.log(r[n, k])
    for k in range(K):
        stick = stats.beta(q[k]["on"], q[k]["off"])
        log_off = special.digamma(q[k]["off"]) - special.digamma(q[k]["on"] + q[k]["off"])
        terms["sticks"] += math.log(alpha) + (alpha - 1) * log_off + stick.entropy()

        c, w = q[k], np.linalg.inv(q[k]["B"])
        log_det = expected_log_det(c)
        apart = (c["m"] - m0) @ w @ (c["m"] - m0)
        log_p_mean = 0.5 * (
            D * math.log(beta0 / (2 * math.pi)) + log_det - D * beta0 / c["beta"] - beta0 * c["nu"] * apart
        )
        log_p_precision = (
            0.5 * nu0 * np.linalg.slogdet(w0_inv)[1]
            - 0.5 * nu0 * D * math.log(2)
            - special.multigammaln(nu0 / 2, D)
            + 0.5 * (nu0 - D - 1) * log_det
            - 0.5 * c["nu"] * np.trace(w0_inv @ w)
        )
        entropy_mean = 0.5 * D * math.log(2 * math.pi * math.e / c["beta"]) - 0.5 * log_det
        entropy_precision = stats.wishart(df=c["nu"], scale=w).entropy()
        terms["components"] += log_p_mean + log_p_precision + entropy_mean + entropy_precision
    return terms


def elbo(z, var, r, prior, weight=1.0):
    """The bound at the best posterior for responsibilities r, each observation counting `weight` times."""
    q = global_step(z, var, weight * r, prior)
    terms = elbo_terms(z, var, r, q, prior)
    of_rows = terms["likelihood"] + terms["assignment"] + terms["entropy"]
    return weight * of_rows + terms["sticks"] + terms["components"]


def log_marginal(z, prior):
    """log p(z_1..z_N) of one Gaussian, parameters integrated out, by the multivariate gamma formula."""
    _, _, beta0, nu0, w0_inv = prior
    n, D = z.shape
    q = global_step(z, np.zeros_like(z), np.ones((n, 1)), prior)[0]
    return (
        -0.5 * n * D * math.log(math.pi)
        + special.multigammaln(q["nu"] / 2, D)
        - special.multigammaln(nu0 / 2, D)
        + 0.5 * nu0 * np.linalg.slogdet(w0_inv)[1]
        - 0.5 * q["nu"] * np.linalg.slogdet(q["B"])[1]
        + 0.5 * D * math.log(beta0 / q["beta"])
    )
