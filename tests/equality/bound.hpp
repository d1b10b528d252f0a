// Bounds on the difference between a run on ranks and a run on one device, when only the order of additions differs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "run.hpp"

namespace equality {

/// AdamW moves a weight by rate · m / (√v + ε), m and v being means of gradients and their squares. With ε = 1e-8, a gradient of pure rounding error moves its
/// weight as far as any other, in any direction: only the trivial bound, rate · steps, holds. This ε is below most gradients here and far above their rounding:
/// a step is a smooth function of the gradient.
inline constexpr double epsilon = 1e-2;

/// Maximum differences between two runs: of all weights together, as a distance (the root of the sum of squares); of a step's loss; of a
/// step's gradient norm.
struct bound {
  double weights = 0, losses = 0, norms = 0;
};

/// To first order, and with independent rounding errors, as a distance between vectors [Higham & Mary 2019, "A new approach to
/// probabilistic rounding error analysis": a sum of n terms is off by λ √n u times its size, except with probability 2 exp(-λ²/2)]:
///   u       half of fp32's epsilon; λ = 4
///   n       variances add: n counts a gradient's sum over all tokens of a global batch, and the sums before it, one after the other, each
///           over at most the inner channels: 7 per layer in the forward pass, twice as many in the backward pass, and 6 at the ends
///   δ       a gradient's error: λ √n u times the gradient's norm, clipped where a step clips it
///   step    m is off by δ, √v too (it is a norm of gradients), and |m| <= 1.2 √v in ten steps (Cauchy and Schwarz, of the weights 0.9^i
///           and 0.999^i): so m / (√v + ε) is off by less than 2.2 δ / ε
///   steps   weights that are off by w give gradients that are off by w · H, with a curvature H of about 1: the error grows by
///           a = 2.2 rate H / ε in a step, to a total of 2.2 rate δ / ε · ((1 + a)^steps - 1) / a
///   weights are rounded as well, once per step: λ √steps u times their norm
///   losses  λ √n u loss, and the gradient's norm times the weights' distance (Cauchy and Schwarz); norms: δ + H times that distance
[[nodiscard]] inline bound bound_of(const drawn_run& run, const outcome& alone) {
  constexpr double u = std::numeric_limits<float>::epsilon() / 2, lambda = 4, curvature = 1;
  const auto& settings = run.settings;
  const auto steps = static_cast<double>(settings.max_steps);
  const double norm = *std::max_element(alone.norms.begin(), alone.norms.end());
  const double stepped = settings.max_grad_norm > 0 ? std::min(norm, settings.max_grad_norm) : norm;
  const auto rows = static_cast<double>(settings.micro_batch_size * settings.gradient_accumulation_steps * run.mesh.data);
  const double num_tokens = rows * static_cast<double>(run.shape.max_position_embeddings), sums = 3 * 7 * static_cast<double>(run.shape.num_layers) + 6;
  const double rounding = lambda * std::sqrt(num_tokens + sums * static_cast<double>(run.shape.intermediate_size)) * u;
  double squares = 0;
  for (const double weight : alone.weights) squares += weight * weight;
  const double moved = 2.2 * settings.learning_rate / epsilon, grown = moved * curvature;
  const double weights = moved * rounding * stepped * (std::pow(1 + grown, steps) - 1) / grown + lambda * std::sqrt(steps * squares) * u;
  return {weights, rounding * *std::max_element(alone.losses.begin(), alone.losses.end()) + norm * weights, rounding * norm + curvature * weights};
}

}  // namespace equality
