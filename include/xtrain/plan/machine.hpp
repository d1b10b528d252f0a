// A device and its links, for predictions.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// Sending speed of a device, one direction.
struct link_speed {
  double bandwidth = 0;  ///< bytes per second
  double latency = 0;    ///< seconds until the first byte arrives

  friend bool operator==(const link_speed&, const link_speed&) = default;
};

/// A device in a machine of identical nodes. Peaks are dense data-sheet values; *_share: the fraction that programs reach.
struct machine {
  std::string name{};
  double fp64 = 0, fp32 = 0, bf16 = 0, fp16 = 0;  ///< peak FLOP/s of matrix products; 0: unsupported
  double memory_bandwidth = 0;                    ///< bytes per second
  std::size_t memory = 0;                         ///< bytes
  std::size_t communicator = 0;                   ///< bytes of it that each communicator of the vendor's collectives takes
  std::size_t devices_per_node = 1;
  link_speed inside{};   ///< within a node
  link_speed between{};  ///< between nodes

  double matmul_share = 0.7;  ///< of peak FLOP/s; large products of a good library
  double bandwidth_share = 0.8;
  double link_share = 0.8;
  double launch = 0;      ///< seconds per kernel
  double message = 7e-6;  ///< processor seconds per message; measured between processes and threads of one host

  /// Peak FLOP/s by dtype name.
  ///   throws  config_error when unsupported
  [[nodiscard]] double peak(std::string_view dtype) const {
    const double found = dtype == "fp64" ? fp64 : dtype == "fp32" ? fp32 : dtype == "bf16" ? bf16 : dtype == "fp16" ? fp16 : 0.0;
    require<config_error>(found > 0, "machine ", name, ": must compute in ", dtype, "; it does not");
    return found;
  }

  friend bool operator==(const machine&, const machine&) = default;
};

/// throws config_error for an invalid value
inline void require_machine(const machine& m) {
  const auto check = [&](double value, std::string_view what, bool must_be) {
    require<config_error>(std::isfinite(value) && (must_be ? value > 0 : value >= 0), "machine ", m.name, ": ", what, " must be ",
                          must_be ? "a number above 0" : "non-negative", "; given ", value);
  };
  check(m.fp64, "fp64", false);
  check(m.fp32, "fp32", true);
  check(m.bf16, "bf16", false);
  check(m.fp16, "fp16", false);
  check(m.memory_bandwidth, "memory_bandwidth", true);
  require<config_error>(m.devices_per_node > 0, "machine ", m.name, ": devices_per_node must be at least 1; given 0");
  check(m.inside.latency, "latency inside", false);
  check(m.between.latency, "latency between", false);
  check(m.inside.bandwidth, "bandwidth inside", m.devices_per_node > 1);
  check(m.between.bandwidth, "bandwidth between", false);
  check(m.launch, "launch", false);
  check(m.message, "message", false);
  const auto check_shard = [&](double value, std::string_view what) {
    require<config_error>(value > 0 && value <= 1, "machine ", m.name, ": ", what, " must be above 0 and at most 1; given ", value);
  };
  check_shard(m.matmul_share, "matmul_share");
  check_shard(m.bandwidth_share, "bandwidth_share");
  check_shard(m.link_share, "link_share");
}

}  // namespace xtrain
