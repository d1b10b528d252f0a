// What a trainer shows of itself to the rooms beside it.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>

#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/parallel/traffic.hpp>

namespace xtrain {

template <class Model>
class trainer;  // trainer.hpp; here for who only names it

/// What a run needs, found by running one step of it on the dry device.
struct rehearsal {
  std::array<std::size_t, memory_roles> bytes{};  ///< of device memory, by role
  pass_sizes passes{};
  std::size_t parameters = 0, trained = 0;
  std::size_t places = 0;  ///< tokens of a full step
  dry_record record{};     ///< of one step
  step_traffic sent{};     ///< by this rank in one step

  [[nodiscard]] std::size_t total() const {
    std::size_t all = 0;
    for (const std::size_t role : bytes) all += role;
    return all;
  }
  [[nodiscard]] std::size_t of(memory_role role) const { return bytes[static_cast<std::size_t>(role)]; }
};

namespace clause {

template <class T>
concept trainer_can_be_rehearsed = requires(const typename T::model_type::config& sizes, const typename T::model_type::options& options,
                                            const typename T::config& settings, const typename T::device::properties& properties) {
  { T::rehearse(sizes, options, settings, properties) } -> std::same_as<rehearsal>;
};

}  // namespace clause

template <class T>
concept rehearsable_trainer = clause::trainer_can_be_rehearsed<T>;

}  // namespace xtrain
