// Each unit's work: the same training run, and the names and sizes of public types as it sees them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/text.hpp>

namespace tiny {

struct recipe : xtrain::defaults {
  using optimizer = xtrain::sgd;
};
using model = xtrain::llama<recipe>;

}  // namespace tiny

struct seen_type {
  std::string name{};
  std::size_t size = 0, alignment = 0;
  friend bool operator==(const seen_type&, const seen_type&) = default;
};

// Public types in parameters: if a compiler flag changed one, the program would not link.
namespace plain {
std::vector<seen_type> types();
std::vector<double> train(tiny::model& small, const xtrain::dataset& data);
xtrain::array<double, 2> doubled(const xtrain::array<double, 2>& x);
}  // namespace plain
namespace optimised {
std::vector<seen_type> types();
std::vector<double> train(tiny::model& small, const xtrain::dataset& data);
xtrain::array<double, 2> doubled(const xtrain::array<double, 2>& x);
}  // namespace optimised
