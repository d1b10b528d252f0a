// Prefix trie: texts that begin at an offset, in one walk.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>

namespace xtrain::detail {

class byte_trie {
 public:
  /// Maximum depth: bounds the cost of a walk for any file.
  static constexpr std::size_t longest = 1024;

  byte_trie() = default;
  /// Texts with a non-negative value; of duplicates the last.
  ///   throws  config_error if a text is longer than `longest` bytes
  byte_trie(std::vector<std::pair<std::string, std::int32_t>> texts, const std::string& who) {
    for (const auto& [text, value] : texts)
      require<config_error>(text.size() <= longest, who, ": a token must be at most ", longest, " bytes long; one is ", text.size());
    std::vector<std::size_t> order(texts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const int differs = texts[a].first.compare(texts[b].first);
      return differs != 0 ? differs < 0 : a < b;
    });
    const auto text = [&](std::size_t i) -> const std::string& { return texts[order[i]].first; };
    nodes_.push_back({});
    struct range {
      std::size_t begin, end, depth, node;
    };
    std::vector<range> todo{{0, texts.size(), 0, 0}};
    for (std::size_t next = 0; next < todo.size(); ++next) {  // breadth first: children are adjacent
      const range r = todo[next];
      std::size_t i = r.begin;
      for (; i < r.end && text(i).size() == r.depth; ++i) nodes_[r.node].value = texts[order[i]].second;
      nodes_[r.node].children = static_cast<std::uint32_t>(nodes_.size());
      while (i < r.end) {
        const char label = text(i)[r.depth];
        std::size_t j = i;
        while (j < r.end && text(j)[r.depth] == label) ++j;
        todo.push_back({i, j, r.depth + 1, nodes_.size()});
        nodes_.push_back({});
        labels_.resize(nodes_.size());
        labels_.back() = static_cast<unsigned char>(label);
        ++nodes_[r.node].count;
        i = j;
      }
    }
    for (node& n : nodes_) {
      if (n.count <= few) continue;
      n.label_set = static_cast<std::uint32_t>(sets_.size());
      sets_.emplace_back(labels_.data() + n.children, n.count);
    }
    for (std::size_t i = 0; i < nodes_[0].count; ++i)
      first_[labels_[nodes_[0].children + i]] = nodes_[0].children + static_cast<std::uint32_t>(i);
  }

  [[nodiscard]] bool empty() const { return nodes_.size() < 2; }
  /// A text begins with this byte.
  [[nodiscard]] bool begins_with(char byte) const { return first_[static_cast<unsigned char>(byte)] != 0; }

  /// visit(length, value) for texts at `at`, shortest first; not the empty text.
  template <class Visit>
  void for_each_prefix(std::string_view text, std::size_t at, Visit&& visit) const {
    if (at >= text.size()) return;
    std::uint32_t inner = first_[static_cast<unsigned char>(text[at])];
    for (std::size_t i = at + 1; inner != 0; ++i) {
      if (nodes_[inner].value >= 0) visit(i - at, nodes_[inner].value);
      if (i >= text.size()) return;
      inner = child(inner, static_cast<unsigned char>(text[i]));
    }
  }

 private:
  static constexpr std::uint32_t few = 6;  // up to so many labels: linear search

  struct node {
    std::uint32_t children = 0, count = 0, label_set = 0;
    std::int32_t value = -1;
  };
  /// Labels of a node's children, and a label's rank.
  struct label_set {
    std::array<std::uint64_t, 4> bits{};
    std::array<std::uint16_t, 4> before{};

    label_set(const unsigned char* labels, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) bits[labels[i] >> 6] |= std::uint64_t{1} << (labels[i] & 63U);
      for (std::size_t i = 1; i < 4; ++i) before[i] = static_cast<std::uint16_t>(before[i - 1] + std::popcount(bits[i - 1]));
    }
  };

  [[nodiscard]] std::uint32_t child(std::uint32_t of, unsigned char label) const {
    const node& n = nodes_[of];
    if (n.count > few) {
      const label_set& set = sets_[n.label_set];
      const std::uint64_t bits = set.bits[label >> 6], bit = std::uint64_t{1} << (label & 63U);
      if ((bits & bit) == 0) return 0;
      return n.children + set.before[label >> 6] + static_cast<std::uint32_t>(std::popcount(bits & (bit - 1)));
    }
    for (std::uint32_t i = n.children; i < n.children + n.count; ++i)
      if (labels_[i] == label) return i;
    return 0;
  }

  std::vector<node> nodes_;
  std::vector<unsigned char> labels_;  // of the edge to each node
  std::vector<label_set> sets_;
  std::array<std::uint32_t, 256> first_{};
};

}  // namespace xtrain::detail
