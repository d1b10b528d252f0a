// Definitions of machine_file.hpp.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/machine_file.hpp>

namespace xtrain {

namespace detail {

/// A misspelled key must be an error.
inline void require_known(const json_settings& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.object().items()) {
    bool found = false;
    for (const std::string_view name : known) found = found || key == name;
    require<config_error>(found, object.who(), ": must hold numbers of a machine only; given '", key, "'");
  }
}

[[nodiscard]] inline link_speed link_from(const json_settings& object) {
  require_known(object, {"bandwidth", "latency"});
  return {object.number_or(0, {"bandwidth"}), object.number_or(0, {"latency"})};
}

}  // namespace detail

XTRAIN_INLINE machine parse_machine(std::string_view text, const std::string& who) {
  const json_settings all(parse_json(text, who), who);
  detail::require_known(all, {"name", "fp64", "fp32", "bf16", "fp16", "memory_bandwidth", "memory", "communicator", "devices_per_node", "inside", "between",
                              "matmul_share", "bandwidth_share", "link_share", "launch", "message"});
  machine m;
  m.name = all.text_or(who, {"name"});
  m.fp64 = all.number_or(0, {"fp64"});
  m.fp32 = all.number_or(0, {"fp32"});
  m.bf16 = all.number_or(0, {"bf16"});
  m.fp16 = all.number_or(0, {"fp16"});
  m.memory_bandwidth = all.number_or(0, {"memory_bandwidth"});
  m.memory = all.size({"memory"});
  if (all.has({"communicator"})) m.communicator = all.size({"communicator"});
  m.devices_per_node = all.size_or(m.devices_per_node, {"devices_per_node"});
  m.inside = detail::link_from(all.inner({"inside"}));
  m.between = detail::link_from(all.inner({"between"}));
  m.matmul_share = all.number_or(m.matmul_share, {"matmul_share"});
  m.bandwidth_share = all.number_or(m.bandwidth_share, {"bandwidth_share"});
  m.link_share = all.number_or(m.link_share, {"link_share"});
  m.launch = all.number_or(m.launch, {"launch"});
  m.message = all.number_or(m.message, {"message"});
  require_machine(m);
  return m;
}

XTRAIN_INLINE machine read_machine(const std::string& path) {
  const mapped_file file(path);
  return parse_machine(file.text(), path);
}

XTRAIN_INLINE std::string machine_text(const machine& m) {
  const auto link = [](const link_speed& l) { return json{{"bandwidth", l.bandwidth}, {"latency", l.latency}}; };
  json all{{"name", m.name},
           {"fp64", m.fp64},
           {"fp32", m.fp32},
           {"bf16", m.bf16},
           {"fp16", m.fp16},
           {"memory_bandwidth", m.memory_bandwidth},
           {"memory", m.memory},
           {"devices_per_node", m.devices_per_node},
           {"inside", link(m.inside)},
           {"between", link(m.between)},
           {"matmul_share", m.matmul_share},
           {"bandwidth_share", m.bandwidth_share},
           {"link_share", m.link_share},
           {"launch", m.launch},
           {"message", m.message}};
  if (m.communicator > 0) all["communicator"] = m.communicator;
  return all.dump(2) + "\n";
}

}  // namespace xtrain
