// The device conformance suite: every kernel, forward and backward, on odd sizes, against the reference device. Run it first and last for a new device.
//
//     xtrain::testing::conformance<acme_device> suite;
//     suite.check_all();
//     std::fputs(suite.text().c_str(), stdout);
//
// Prints per kernel and dtype the number of agreeing cases and the largest error as a fraction of the tolerance, or that the kernel is missing. A case fails
// when an element is wrong, something outside the operands was written, or a read-only operand was changed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/testing/compare.hpp>
#include <xtrain/testing/conformance/activations.hpp>
#include <xtrain/testing/conformance/attention.hpp>
#include <xtrain/testing/conformance/elementwise.hpp>
#include <xtrain/testing/conformance/embeddings.hpp>
#include <xtrain/testing/conformance/experts.hpp>
#include <xtrain/testing/conformance/large.hpp>
#include <xtrain/testing/conformance/losses.hpp>
#include <xtrain/testing/conformance/matrix_optimizers.hpp>
#include <xtrain/testing/conformance/norms.hpp>
#include <xtrain/testing/conformance/objectives.hpp>
#include <xtrain/testing/conformance/optimizers.hpp>
#include <xtrain/testing/conformance/products.hpp>
#include <xtrain/testing/conformance/rows.hpp>
#include <xtrain/testing/conformance/sampling.hpp>
#include <xtrain/testing/conformance/step_scalars.hpp>
#include <xtrain/testing/conformance/streams.hpp>

namespace xtrain::testing {

/// Result of one kernel for one dtype.
struct conformance_result {
  std::string kernel = {};      // or what check_stream() checks
  std::string_view dtype = {};  // empty for check_stream()
  bool missing = false;
  std::size_t cases = 0;
  std::size_t failed = 0;
  double largest_error = 0;  // as a fraction of the tolerance
  std::string first_problem = {};

  [[nodiscard]] bool passed() const { return !missing && failed == 0; }
};

/// Checks Device. `guard` bytes before and after every operand must not change.
///   Truth   the device to compare with. For sizes of real models, which take hours on the reference: a checked device in host memory
template <device Device, host_addressable Truth = reference>
class conformance {
 public:
  explicit conformance(const typename Device::context& context = typename Device::context{}) : context_(context), stream_(context_) {}

  /// Every kernel for every dtype, and streams.
  void check_all() {
    check_stream();
    check<float>();
    check<bf16>();
    check<fp16>();
    check<double>();
  }

  template <dtype T>
  void check() {
    detail::check_products<T>(*this);
    detail::check_norms<T>(*this);
    detail::check_activations<T>(*this);
    detail::check_embeddings<T>(*this);
    detail::check_experts<T>(*this);
    detail::check_elementwise<T>(*this);
    detail::check_blocks<T>(*this);
    detail::check_rows_apart<T>(*this);
    detail::check_attention<T>(*this);
    detail::check_attention_blocks<T>(*this);
    detail::check_losses<T>(*this);
    detail::check_preferences<T>(*this);
    detail::check_grpo<T>(*this);
    detail::check_value_loss<T>(*this);
    detail::check_distillation<T>(*this);
    detail::check_optimizers<T>(*this);
    detail::check_matrix_optimizers<T>(*this);
    detail::check_step_scalars<T>(*this);
    detail::check_rows<T>(*this);
    detail::check_sampling<T>(*this);
  }
  void check_stream() {
    detail::stream_checks<Device> checks(context_);
    const auto one = [&](const char* what, auto&& check) {
      conformance_result& result = entry(what, {});
      check([&](const std::string& problem) {
        ++result.cases;
        if (!problem.empty() && result.failed++ == 0) result.first_problem = concat("case ", result.cases, ", ", problem);
      });
    };
    one("copies", [&](auto&& report) { checks.copies(report); });
    one("fill_zero", [&](auto&& report) { checks.fills(report); });
    one("events", [&](auto&& report) { checks.events(report); });
  }
  /// The kernels that dominate a step, at a model's sizes: real models for hardware; on a host, a check takes minutes.
  template <dtype T>
  void check_large(const model_sizes& sizes) {
    detail::check_large<T>(*this, sizes);
  }
  template <dtype T>
  void check_large() {
    for (const model_sizes& sizes : real_models) check_large<T>(sizes);
  }

  [[nodiscard]] const std::vector<conformance_result>& results() const { return results_; }
  /// Something was checked, and all of it agreed.
  [[nodiscard]] bool passed() const {
    return !results_.empty() && std::all_of(results_.begin(), results_.end(), [](const auto& r) { return r.passed(); });
  }
  [[nodiscard]] std::string text() const {
    std::string all = concat("conformance of device ", Device::name, " with ", Truth::name, "\n");
    std::size_t good = 0, bad = 0, missing = 0;
    for (const conformance_result& r : results_) {
      std::string line = concat("  ", r.kernel, r.dtype.empty() ? "" : " ", r.dtype, " ");
      line.resize(std::max<std::size_t>(line.size(), 36), '.');
      (r.missing ? missing : r.failed != 0 ? bad : good) += 1;
      if (r.missing) all += line + " missing\n";
      else if (r.failed != 0) all += concat(line, " FAILED in ", r.failed, " of ", r.cases, " cases: ", r.first_problem, "\n");
      else all += concat(line, " ok, ", r.cases, " cases, largest error ", fixed(100.0 * r.largest_error, 1), " % of what is allowed\n");
    }
    return concat(all, good, " agree, ", bad, " fail, ", missing, " missing\n");
  }

  /// Operands begin that many elements after an aligned address: tensors may begin anywhere in an array.
  void begin_operands_at(std::size_t element) { first_element_ = element; }

  /// Runs one kernel, given on host memory, on both devices and compares its outputs.
  ///   terms      number of products or values that are summed for one result
  ///   magnitude  the largest partial sum to expect
  /// Tolerance: one rounding of T on each side, and for the sum a random walk of `terms` roundings in the accumulate type, with a factor of 8 for the longest
  /// excursion and for functions (exp, tanh).
  template <class T, class Kernel>
  void check_kernel(const Kernel& kernel, double terms, double magnitude) {
    conformance_result& result = entry(detail::name_of_kernel<Kernel>(), dtype_traits<T>::name);
    if constexpr (!runs_kernel<Device, decltype(kernel::moved_to<typename Device::memory>(kernel, to_device_span{}))>) {
      result.missing = true;
    } else {
      const double walk = 8.0 * dtype_traits<accumulate_t<T>>::unit_roundoff * std::sqrt(terms + 1.0) * magnitude;
      std::vector<guarded> operands;
      std::vector<const void*> hosts;  // operands that alias on the host alias on the device too
      std::vector<bool> changes;
      const auto rank_of_block = [&](const void* host) {
        return static_cast<std::size_t>(std::find(hosts.begin(), hosts.end(), host) - hosts.begin());
      };
      const auto on_device = kernel::moved_to<typename Device::memory>(kernel, [&](const auto& operand) {
        using element = typename std::remove_cvref_t<decltype(operand)>::element_type;
        if (operand.empty()) return span_of<element, typename Device::memory>(nullptr, 0);
        const std::size_t place = rank_of_block(operand.raw());
        if (place == operands.size()) {
          operands.emplace_back(context_, stream_, operand.raw(), operand.bytes(), first_element_ * sizeof(element));
          hosts.push_back(operand.raw());
          changes.push_back(false);
        }
        changes[place] = changes[place] || std::remove_cvref_t<decltype(operand)>::access != kernel::role::read;
        return operands[place].template inner<element>();
      });
      using xtrain::scratch_bytes;  // besides this namespace's
      const buffer<Device> scratch(context_, scratch_bytes(context_.properties(), on_device), memory_role::workspace);
      run_kernel(stream_, on_device, scratch.template as<std::byte>());
      stream_.synchronize();

      std::vector<std::vector<std::byte>> results;
      for (guarded& operand : operands) results.push_back(operand.fetch(stream_));
      run_truth(kernel);

      ++result.cases;
      std::string problem;
      const auto report = [&](const auto&... parts) {
        if (problem.empty()) problem = concat(parts...);
      };
      std::size_t next = 0;
      kernel::for_each_operand(kernel, [&](const auto& operand) {
        using operand_type = std::remove_cvref_t<decltype(operand)>;
        using value = std::remove_const_t<typename operand_type::element_type>;
        if (operand.empty()) return;
        const std::size_t index = next++, place = rank_of_block(operand.raw());
        if (!operands[place].guards_hold(results[place])) report("operand ", index, ": memory outside it was written");
        const std::byte* got = results[place].data() + operands[place].before();
        if constexpr (operand_type::access == kernel::role::read) {
          if (!changes[place] && std::memcmp(got, operand.raw(), operand.bytes()) != 0)
            report("operand ", index, " is only read but was changed");
        } else {
          std::vector<value> copy(operand.size());
          std::memcpy(copy.data(), got, operand.bytes());
          if constexpr (std::is_same_v<value, token>) {  // integers must match exactly
            const auto [wrong, right] = std::mismatch(copy.begin(), copy.end(), operand.raw());
            if (wrong != copy.end())
              report("operand ", index, ": the first that differs is at ", wrong - copy.begin(), ": got ", *wrong, ", expected ", *right);
          } else if constexpr (std::is_same_v<value, std::uint8_t>) {
            report_codes(report, index, copy, operand.raw());
          } else if constexpr (!dtype<value>) {  // scalars of a step: devices may round functions such as pow differently
            constexpr double few = 8.0 * dtype_traits<double>::unit_roundoff;
            const auto expected = detail::numbers_in<value>(operand.raw(), operand.size());
            const comparison found = compare<double, double>(detail::numbers_in<value>(copy.data(), copy.size()), expected, {few, few});
            result.largest_error = std::max(result.largest_error, found.largest_error);
            if (!found) report("operand ", index, ": ", found.problem);
          } else {
            const tolerance allowed{.absolute = walk, .relative = 2.0 * dtype_traits<value>::unit_roundoff};
            const comparison found =
                compare<value, value>(std::span<const value>(copy), std::span<const value>(operand.raw(), operand.size()), allowed);
            result.largest_error = std::max(result.largest_error, found.largest_error);
            if (!found) report("operand ", index, ": ", found.problem);
          }
        }
      });
      if (!problem.empty() && result.failed++ == 0) result.first_problem = concat("case ", result.cases, ", ", problem);
    }
  }

 private:
  /// Codes may differ by one at a tie decided by rounding: at most one in a thousand.
  template <class Report>
  static void report_codes(const Report& report, std::size_t index, const std::vector<std::uint8_t>& got, const std::uint8_t* expected) {
    std::size_t differ = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const int by = got[i] - expected[i];
      differ += by != 0 ? 1 : 0;
      if (by > 1 || by < -1) return report("operand ", index, ": code ", i, ": got ", int{got[i]}, ", expected ", int{expected[i]});
    }
    if (differ * 1000 > got.size() + 999) report("operand ", index, ": ", differ, " of ", got.size(), " codes differ by one");
  }

  template <class Kernel>
  void run_truth(const Kernel& kernel) {
    const auto on_truth = kernel::moved_to<typename Truth::memory>(kernel, [](const auto& operand) {
      using element = typename std::remove_cvref_t<decltype(operand)>::element_type;
      return span_of<element, typename Truth::memory>(operand.raw(), operand.size());
    });
    using xtrain::scratch_bytes;
    const buffer<Truth> scratch(truth_, scratch_bytes(truth_.properties(), on_truth), memory_role::workspace);
    run_kernel(truth_stream_, on_truth, scratch.template as<std::byte>());
    truth_stream_.synchronize();
  }

  struct to_device_span {
    template <class Operand>
    auto operator()(const Operand& operand) const {
      return span_of<typename Operand::element_type, typename Device::memory>(operand.raw(), operand.size());
    }
  };

  /// An operand on the device, with sentinels on both sides.
  class guarded {
   public:
    /// `offset` bytes move its first element away from an aligned address.
    guarded(const typename Device::context& context, typename Device::stream& stream, const void* host, std::size_t bytes, std::size_t offset)
        : before_(guard + offset), bytes_(bytes), memory_(context, before_ + bytes + guard, memory_role::other) {
      std::vector<std::byte> all(memory_.bytes(), sentinel);
      std::copy_n(static_cast<const std::byte*>(host), bytes, all.begin() + static_cast<std::ptrdiff_t>(before_));
      stream.copy_from_host(memory_.template as<std::byte>().raw(), all.data(), all.size());
      stream.synchronize();
    }
    template <class T>
    [[nodiscard]] device_span<T, typename Device::memory> inner() const {
      T* const first = reinterpret_cast<T*>(memory_.template as<std::byte>().raw() + before_);
      return span_of<T, typename Device::memory>(first, bytes_ / sizeof(T));
    }
    [[nodiscard]] std::vector<std::byte> fetch(typename Device::stream& stream) const {
      std::vector<std::byte> all(memory_.bytes());
      stream.copy_to_host(all.data(), memory_.template as<std::byte>().raw(), all.size());
      stream.synchronize();
      return all;
    }
    [[nodiscard]] bool guards_hold(const std::vector<std::byte>& all) const {
      const auto whole = [](std::byte b) { return b == sentinel; };
      return std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(before_), whole) &&
             std::all_of(all.begin() + static_cast<std::ptrdiff_t>(before_ + bytes_), all.end(), whole);
    }
    [[nodiscard]] std::size_t before() const { return before_; }

   private:
    static constexpr std::byte sentinel{0xA5};
    static constexpr std::size_t guard = 64;
    std::size_t before_, bytes_;
    buffer<Device> memory_;
  };

  conformance_result& entry(std::string_view kernel, std::string_view dtype) {
    for (conformance_result& known : results_)
      if (known.kernel == kernel && known.dtype == dtype) return known;
    return results_.emplace_back(conformance_result{.kernel = std::string(kernel), .dtype = dtype});
  }

  typename Device::context context_;
  typename Device::stream stream_;
  typename Truth::context truth_{};
  typename Truth::stream truth_stream_{truth_};
  std::vector<conformance_result> results_;
  std::size_t first_element_ = 0;
};

}  // namespace xtrain::testing
