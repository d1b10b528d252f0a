// A device mesh: ranks as points of a grid with named axes, which decide what a rank computes and with whom it communicates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>

namespace xtrain {

/// data: other sequences, same weights. tensor: a shard of every layer. pipeline: other layers. context: other tokens of the same sequences. expert: other
/// experts.
enum class axis : std::uint8_t { data, tensor, pipeline, context, expert };

/// Number of axes.
inline constexpr std::size_t mesh_axes = 5;

[[nodiscard]] constexpr std::string_view name_of(axis a) {
  constexpr std::array<std::string_view, mesh_axes> names{"data", "tensor", "pipeline", "context", "expert"};
  return names[static_cast<std::size_t>(a)];
}

/// Ranks per axis.
struct mesh_sizes {
  std::size_t data_parallel_size = 1, tensor_parallel_size = 1, pipeline_parallel_size = 1, context_parallel_size = 1, expert_parallel_size = 1;

  [[nodiscard]] constexpr std::size_t of(axis a) const {
    return std::array{data_parallel_size, tensor_parallel_size, pipeline_parallel_size, context_parallel_size,
                      expert_parallel_size}[static_cast<std::size_t>(a)];
  }
  [[nodiscard]] constexpr std::size_t ranks() const {
    return data_parallel_size * tensor_parallel_size * pipeline_parallel_size * context_parallel_size * expert_parallel_size;
  }

  friend constexpr bool operator==(const mesh_sizes&, const mesh_sizes&) = default;
};

/// Axes from adjacent to distant neighbors.
using axis_order = std::array<axis, mesh_axes>;
/// Most communication innermost: tensor parallelism within a machine, data and pipeline parallelism across machines.
inline constexpr axis_order usual_order{axis::tensor, axis::context, axis::expert, axis::data, axis::pipeline};

/// Ranks by coordinates.
class mesh {
 public:
  /// throws config_error when the sizes do not multiply to the number of ranks, or the order repeats an axis
  mesh(std::shared_ptr<transport> network, const mesh_sizes& sizes, const axis_order& order = usual_order)
      : network_(std::move(network)), sizes_(sizes), order_(order) {
    for (std::size_t a = 0; a < mesh_axes; ++a)
      require<config_error>(sizes.of(static_cast<axis>(a)) > 0, "mesh: the axis '", name_of(static_cast<axis>(a)), "' must have at least one rank");
    require<config_error>(sizes.ranks() == network_->size(), "mesh: data ", sizes.data_parallel_size, " x tensor ",
                          sizes.tensor_parallel_size, " x pipeline ", sizes.pipeline_parallel_size, " x context ",
                          sizes.context_parallel_size, " x expert ", sizes.expert_parallel_size,
                          " must be all ranks of the run: ", sizes.ranks(), " and ", network_->size());
    std::array<bool, mesh_axes> named{};
    for (const axis a : order) named[static_cast<std::size_t>(a)] = true;
    for (std::size_t a = 0; a < mesh_axes; ++a)
      require<config_error>(named[a], "mesh: the order must name every axis once; '", name_of(static_cast<axis>(a)), "' is missing");
  }

  [[nodiscard]] const mesh_sizes& sizes() const { return sizes_; }
  [[nodiscard]] const std::shared_ptr<transport>& network() const { return network_; }
  [[nodiscard]] std::size_t place(axis on, std::size_t rank) const { return rank / stride(on) % sizes_.of(on); }
  [[nodiscard]] std::size_t place(axis on) const { return place(on, network_->rank()); }

  /// The process group along this axis. `use` (below 8): a channel per group of an axis in use at the same time.
  [[nodiscard]] group along(axis on, std::uint32_t use = 0) const {
    const std::size_t step = stride(on), first = network_->rank() - place(on) * step;
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < sizes_.of(on); ++i) members.push_back(first + i * step);
    return {network_, std::move(members), 8 * (static_cast<std::uint32_t>(on) + 1) + use};
  }
  [[nodiscard]] group all(std::uint32_t use = 0) const { return group(network_, use); }

 private:
  [[nodiscard]] std::size_t stride(axis on) const {
    std::size_t step = 1;
    for (const axis a : order_) {
      if (a == on) break;
      step *= sizes_.of(a);
    }
    return step;
  }

  std::shared_ptr<transport> network_;
  mesh_sizes sizes_;
  axis_order order_;
};

}  // namespace xtrain
