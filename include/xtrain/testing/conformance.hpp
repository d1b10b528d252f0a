// The device conformance suite: every kernel, forward and backward, on odd sizes, against the reference device. It is what
// someone who brings a device up runs first and last.
//
//     xtrain::testing::conformance<acme_device> suite;
//     suite.check_all();
//     std::fputs(suite.text().c_str(), stdout);
//
// For every kernel and number type it prints how many cases agreed, the largest error as a share of what is allowed, or
// that the device does not have the kernel. A case fails when an element is off, when anything outside the operands was
// written, or when an operand that is only read was changed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/testing/compare.hpp>

namespace xtrain::testing {

/// What became of one kernel for one number type.
struct conformance_result {
  std::string_view kernel = {};
  std::string_view number = {};
  bool missing = false;
  std::size_t cases = 0;
  std::size_t failed = 0;
  double largest_error = 0;  // as a share of what is allowed
  std::string first_problem = {};

  [[nodiscard]] bool passed() const { return !missing && failed == 0; }
};

namespace detail {

/// Host memory for a case's operands, filled from a counter so that every run checks the same numbers.
class case_memory {
 public:
  /// Numbers in [low, high], rounded to T.
  template <class T>
  device_span<T, host_memory> numbers(std::size_t n, double low = -1.0, double high = 1.0) {
    const auto span = fresh<T>(n);
    for (std::size_t i = 0; i < n; ++i)
      span.raw()[i] = static_cast<T>(low + (high - low) * static_cast<double>(uniform_open(random_word(site(), drawn_++))));
    return span;
  }
  /// Tokens in [0, limit), with one below and one beyond it where there is room: rows without a token.
  device_span<token, host_memory> tokens(std::size_t n, std::size_t limit) {
    const auto span = fresh<token>(n);
    for (std::size_t i = 0; i < n; ++i) span.raw()[i] = static_cast<token>(random_word(site(), drawn_++) % limit);
    if (n > 4) {
      span.raw()[1] = -1;
      span.raw()[3] = static_cast<token>(limit);
    }
    return span;
  }
  /// The same numbers, in memory that may be written.
  template <class Operand>
  auto copy(const Operand& from) {
    using value = std::remove_const_t<typename Operand::element_type>;
    const auto span = fresh<value>(from.size());
    std::copy_n(from.raw(), from.size(), span.raw());
    return span;
  }
  template <class T>
  device_span<T, host_memory> fresh(std::size_t n) {
    auto& memory = all_.emplace_back(n * sizeof(T) + 64);
    return span_of(reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64), n);
  }

 private:
  static random_site site() { return {.seed = 20240229, .step = 0, .site = 7}; }
  std::deque<std::vector<std::byte>> all_;
  std::uint64_t drawn_ = 0;
};

}  // namespace detail

/// Checks Device. `guard` elements before and behind every operand must stay untouched.
template <device Device>
class conformance {
 public:
  explicit conformance(const typename Device::context& context = typename Device::context{}) : context_(context), stream_(context_) {}

  /// Every kernel for every number type.
  void check_all() {
    check<float>();
    check<bf16>();
    check<fp16>();
    check<double>();
  }

  /// Every kernel for one number type.
  template <number T>
  void check() {
    products<T>();
    norms<T>();
    activations<T>();
    embeddings<T>();
    experts<T>();
    elementwise<T>();
    rows_apart<T>();
    attentions<T>();
    attention_blocks<T>();
    losses<T>();
    optimizers<T>();
  }

  [[nodiscard]] const std::vector<conformance_result>& results() const { return results_; }
  /// Something was checked, and all of it agreed.
  [[nodiscard]] bool passed() const {
    return !results_.empty() && std::all_of(results_.begin(), results_.end(), [](const auto& r) { return r.passed(); });
  }
  /// The report, a line per kernel and number type.
  [[nodiscard]] std::string text() const {
    std::string all = concat("conformance of device ", Device::name, " with reference\n");
    std::size_t good = 0, bad = 0, missing = 0;
    for (const conformance_result& r : results_) {
      std::string line = concat("  ", r.kernel, " ", r.number, " ");
      line.resize(std::max<std::size_t>(line.size(), 36), '.');
      (r.missing ? missing : r.failed != 0 ? bad : good) += 1;
      if (r.missing) all += line + " missing\n";
      else if (r.failed != 0) all += concat(line, " FAILED in ", r.failed, " of ", r.cases, " cases: ", r.first_problem, "\n");
      else all += concat(line, " ok, ", r.cases, " cases, largest error ", fixed(100.0 * r.largest_error, 1), " % of what is allowed\n");
    }
    return concat(all, good, " agree, ", bad, " fail, ", missing, " missing\n");
  }

  /// Runs one kernel, given on host memory, on both devices and compares whatever it writes.
  ///   terms      how many products or numbers are summed for one result
  ///   magnitude  the largest partial sum to expect
  /// A result of T may differ by one rounding on each side, and its sum by the random walk of `terms` roundings in the
  /// accumulate type, here with a factor of 8 for the longest excursion and the functions (exp, tanh) inside.
  template <class T, class Kernel>
  void check_kernel(const Kernel& kernel, double terms, double magnitude) {
    conformance_result& result = entry(Kernel::name, number_traits<T>::name);
    if constexpr (!runs_kernel<Device, decltype(kernel::moved_to<typename Device::memory>(kernel, to_device_span{}))>) {
      result.missing = true;
    } else {
      const double walk = 8.0 * number_traits<accumulate_t<T>>::unit_roundoff * std::sqrt(terms + 1.0) * magnitude;
      std::vector<guarded> operands;
      std::vector<const void*> hosts;  // operands that share host memory share device memory too
      std::vector<bool> changes;
      const auto place_of = [&](const void* host) {
        return static_cast<std::size_t>(std::find(hosts.begin(), hosts.end(), host) - hosts.begin());
      };
      const auto on_device = kernel::moved_to<typename Device::memory>(kernel, [&](const auto& operand) {
        using element = typename std::remove_cvref_t<decltype(operand)>::element_type;
        if (operand.empty()) return span_of<element, typename Device::memory>(nullptr, 0);
        const std::size_t place = place_of(operand.raw());
        if (place == operands.size()) {
          operands.emplace_back(context_, stream_, operand.raw(), operand.bytes());
          hosts.push_back(operand.raw());
          changes.push_back(false);
        }
        changes[place] = changes[place] || std::remove_cvref_t<decltype(operand)>::access != kernel::role::read;
        return operands[place].template inner<element>();
      });
      const buffer<Device> scratch(context_, scratch_bytes(context_.properties(), on_device), memory_role::workspace);
      run_kernel(stream_, on_device, scratch.template as<std::byte>());
      stream_.synchronize();

      std::vector<std::vector<std::byte>> results;
      for (guarded& operand : operands) results.push_back(operand.fetch(stream_));
      reference_stream reference(0);
      run_kernel(reference, kernel, {});

      ++result.cases;
      std::string problem;  // the first
      const auto report = [&](const auto&... parts) {
        if (problem.empty()) problem = concat(parts...);
      };
      std::size_t next = 0;
      kernel::for_each_operand(kernel, [&](const auto& operand) {
        using operand_type = std::remove_cvref_t<decltype(operand)>;
        using value = std::remove_const_t<typename operand_type::element_type>;
        if (operand.empty()) return;
        const std::size_t index = next++, place = place_of(operand.raw());
        if (!guarded::guards_hold(results[place])) report("operand ", index, ": memory outside it was written");
        const std::byte* got = results[place].data() + guarded::guard;
        if constexpr (operand_type::access == kernel::role::read) {
          if (!changes[place] && std::memcmp(got, operand.raw(), operand.bytes()) != 0)
            report("operand ", index, " is only read but was changed");
        } else {
          std::vector<value> copy(operand.size());
          std::memcpy(copy.data(), got, operand.bytes());
          if constexpr (std::is_same_v<value, token>) {  // a place is right or wrong
            const auto [wrong, right] = std::mismatch(copy.begin(), copy.end(), operand.raw());
            if (wrong != copy.end())
              report("operand ", index, ": the first that differs is at ", wrong - copy.begin(), ": got ", *wrong, ", expected ", *right);
          } else {
            const tolerance allowed{.absolute = walk, .relative = 2.0 * number_traits<value>::unit_roundoff};
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
  using memory = detail::case_memory;

  struct rows_and_columns {
    std::size_t rows, columns;
  };
  static std::vector<rows_and_columns> sizes(std::initializer_list<rows_and_columns> all) { return all; }

  struct to_device_span {
    template <class Operand>
    auto operator()(const Operand& operand) const {
      return span_of<typename Operand::element_type, typename Device::memory>(operand.raw(), operand.size());
    }
  };

  /// An operand on the device, with sentinels on both sides.
  class guarded {
   public:
    static constexpr std::size_t guard = 64;  // bytes
    guarded(const typename Device::context& context, typename Device::stream& stream, const void* host, std::size_t bytes)
        : memory_(context, bytes + 2 * guard, memory_role::other) {
      std::vector<std::byte> all(bytes + 2 * guard, sentinel);
      std::copy_n(static_cast<const std::byte*>(host), bytes, all.begin() + guard);
      stream.copy_from_host(memory_.template as<std::byte>().raw(), all.data(), all.size());
      stream.synchronize();
    }
    template <class T>
    [[nodiscard]] device_span<T, typename Device::memory> inner() const {
      using plain = std::remove_const_t<T>;
      const auto all = memory_.template as<plain>();
      return all.subspan(guard / sizeof(plain), all.size() - 2 * guard / sizeof(plain));
    }
    [[nodiscard]] std::vector<std::byte> fetch(typename Device::stream& stream) const {
      std::vector<std::byte> all(memory_.bytes());
      stream.copy_to_host(all.data(), memory_.template as<std::byte>().raw(), all.size());
      stream.synchronize();
      return all;
    }
    [[nodiscard]] static bool guards_hold(const std::vector<std::byte>& all) {
      const auto whole = [](std::byte b) { return b == sentinel; };
      return std::all_of(all.begin(), all.begin() + guard, whole) && std::all_of(all.end() - guard, all.end(), whole);
    }

   private:
    static constexpr std::byte sentinel{0xA5};
    buffer<Device> memory_;
  };

  conformance_result& entry(std::string_view kernel, std::string_view number) {
    for (conformance_result& known : results_)
      if (known.kernel == kernel && known.number == number) return known;
    return results_.emplace_back(conformance_result{.kernel = kernel, .number = number});
  }

  template <class T, class C>
  void product(std::size_t m, std::size_t n, std::size_t k, bool ta, bool tb, bool accumulate, bool bias, std::size_t gap) {
    memory mem;
    const std::size_t lda = (ta ? m : k) + gap, ldb = (tb ? k : n) + gap, ldc = n + gap;
    kernel::matmul<host_memory, T, C> kernel{.m = m,
                                             .n = n,
                                             .k = k,
                                             .lda = lda,
                                             .ldb = ldb,
                                             .ldc = ldc,
                                             .transpose_a = ta,
                                             .transpose_b = tb,
                                             .accumulate = accumulate,
                                             .alpha = gap == 0 ? 1.0 : 0.75};
    kernel.a = mem.numbers<T>(((ta ? k : m) - 1) * lda + (ta ? m : k));
    kernel.b = mem.numbers<T>(((tb ? n : k) - 1) * ldb + (tb ? k : n));
    if (bias) kernel.bias_n = mem.numbers<T>(n);
    kernel.c = mem.numbers<C>((m - 1) * ldc + n);
    check_kernel<T>(kernel, static_cast<double>(k), std::sqrt(static_cast<double>(k)) + 2.0);
  }

  template <class T>
  void products() {
    struct size {
      std::size_t m, n, k;
    };
    const std::array<size, 7> product_sizes{{{1, 1, 1}, {3, 5, 7}, {17, 33, 19}, {1, 67, 130}, {6, 35, 21}, {31, 70, 40}, {260, 9, 3}}};
    for (const auto [m, n, k] : product_sizes) {
      for (const bool ta : {false, true}) {
        for (const bool tb : {false, true}) {
          product<T, T>(m, n, k, ta, tb, false, true, 0);
          product<T, T>(m, n, k, ta, tb, true, false, 3);
          if (!std::is_same_v<T, accumulate_t<T>>) product<T, accumulate_t<T>>(m, n, k, ta, tb, true, true, 1);
        }
      }
    }
    product<T, T>(5, 40, 2500, false, false, true, true, 0);  // deeper than any block
    product<T, T>(20, 40, 1030, true, false, true, false, 0);
    struct slim {
      std::size_t m, n, k;
      bool ta, tb;
    };
    // what an adapter of rank 12 or 20 makes of 37 rows, its depth cut into blocks or not
    for (const auto [m, n, k, ta, tb] : {slim{37, 12, 1030, false, true}, slim{37, 20, 1030, false, false}, slim{37, 150, 12, false, true},
                                         slim{37, 150, 12, false, false}, slim{12, 64, 1030, true, false}, slim{64, 20, 1030, true, false},
                                         slim{64, 12, 37, true, false}}) {
      product<T, T>(m, n, k, ta, tb, true, true, 2);
      if (!std::is_same_v<T, accumulate_t<T>>) product<T, accumulate_t<T>>(m, n, k, ta, tb, true, false, 0);
    }
    for (const auto& [n, c] : sizes({{1, 1}, {7, 37}, {40, 131}})) {
      memory mem;
      kernel::column_sum<host_memory, T> kernel{.n = n, .c = c, .stride = c + 2};
      kernel.x_nc = mem.numbers<T>((n - 1) * (c + 2) + c);
      kernel.sum_c = mem.numbers<T>(c);
      check_kernel<T>(kernel, static_cast<double>(n), std::sqrt(static_cast<double>(n)) + 1.0);
    }
  }

  template <class T>
  void norms() {
    using acc = accumulate_t<T>;
    for (const auto& [n, c] : sizes({{1, 1}, {3, 37}, {33, 130}, {5, 64}})) {
      const auto terms = static_cast<double>(c);
      {
        memory mem;
        kernel::rms_norm<host_memory, T> kernel{.n = n, .c = c, .epsilon = 1e-5};
        kernel.x_nc = mem.numbers<T>(n * c);
        kernel.weight_c = mem.numbers<T>(c);
        kernel.y_nc = mem.numbers<T>(n * c);
        kernel.rstd_n = mem.numbers<acc>(n);
        check_kernel<T>(kernel, terms, 4.0);
      }
      {
        memory mem;
        kernel::layer_norm<host_memory, T> kernel{.n = n, .c = c, .epsilon = 1e-5};
        kernel.x_nc = mem.numbers<T>(n * c, -0.5, 2.0);
        kernel.weight_c = mem.numbers<T>(c);
        kernel.bias_c = mem.numbers<T>(c);
        kernel.y_nc = mem.numbers<T>(n * c);
        kernel.mean_n = mem.numbers<acc>(n);
        kernel.rstd_n = mem.numbers<acc>(n);
        // one channel has no variance: rstd is 1/sqrt(epsilon), and so is what rounding is multiplied with
        check_kernel<T>(kernel, terms, c == 1 ? 400.0 : 8.0);
      }
      for (const bool frozen : {false, true}) {
        {
          memory mem;
          kernel::rms_norm_backward<host_memory, T> kernel{.n = n, .c = c};
          kernel.x_nc = mem.numbers<T>(n * c);
          kernel.weight_c = mem.numbers<T>(c);
          kernel.rstd_n = mem.numbers<acc>(n, 0.5, 2.0);
          kernel.dy_nc = mem.numbers<T>(n * c);
          kernel.dx_nc = mem.numbers<T>(n * c);
          if (!frozen) kernel.dweight_c = mem.numbers<T>(c);
          check_kernel<T>(kernel, terms + static_cast<double>(n), 8.0 + std::sqrt(static_cast<double>(n)));
        }
        {
          memory mem;
          kernel::layer_norm_backward<host_memory, T> kernel{.n = n, .c = c};
          kernel.x_nc = mem.numbers<T>(n * c);
          kernel.weight_c = mem.numbers<T>(c);
          kernel.mean_n = mem.numbers<acc>(n, -0.1, 0.1);
          kernel.rstd_n = mem.numbers<acc>(n, 0.5, 2.0);
          kernel.dy_nc = mem.numbers<T>(n * c);
          kernel.dx_nc = mem.numbers<T>(n * c);
          if (!frozen) {
            kernel.dweight_c = mem.numbers<T>(c);
            kernel.dbias_c = mem.numbers<T>(c);
          }
          check_kernel<T>(kernel, terms + static_cast<double>(n), 8.0 + std::sqrt(static_cast<double>(n)));
        }
      }
    }
  }

  template <class T>
  void activations() {
    for (const std::size_t n : {std::size_t{1}, std::size_t{37}, std::size_t{20001}}) {
      memory mem;
      gelu<T, kernel::gelu_tanh, kernel::gelu_tanh_backward>(mem, n);
      gelu<T, kernel::gelu_erf, kernel::gelu_erf_backward>(mem, n);
      kernel::tanh<host_memory, T> forward{.n = n};
      forward.x_n = mem.numbers<T>(n, -6.0, 6.0);
      forward.y_n = mem.numbers<T>(n);
      check_kernel<T>(forward, 8.0, 1.0);
      forward.y_n = mem.copy(forward.x_n);  // in place
      forward.x_n = forward.y_n;
      check_kernel<T>(forward, 8.0, 1.0);
      kernel::tanh_backward<host_memory, T> backward{.n = n};
      backward.y_n = mem.numbers<T>(n);
      backward.dy_n = mem.numbers<T>(n);
      backward.dx_n = mem.numbers<T>(n);
      check_kernel<T>(backward, 3.0, 1.0);
      backward.dx_n = mem.copy(backward.dy_n);  // in place
      backward.dy_n = backward.dx_n;
      check_kernel<T>(backward, 3.0, 1.0);
    }
    for (const auto& [n, f] : sizes({{1, 1}, {5, 19}, {9, 130}})) {
      memory mem;
      kernel::swiglu<host_memory, T> forward{.n = n, .f = f};
      forward.gate_up_n2f = mem.numbers<T>(n * 2 * f, -8.0, 8.0);
      forward.y_nf = mem.numbers<T>(n * f);
      check_kernel<T>(forward, 8.0, 64.0);
      kernel::swiglu_backward<host_memory, T> backward{.n = n, .f = f};
      backward.gate_up_n2f = mem.numbers<T>(n * 2 * f, -8.0, 8.0);
      backward.dy_nf = mem.numbers<T>(n * f);
      backward.dgate_up_n2f = mem.numbers<T>(n * 2 * f);
      check_kernel<T>(backward, 12.0, 64.0);
      backward.dgate_up_n2f = mem.copy(backward.gate_up_n2f);  // in place
      backward.gate_up_n2f = backward.dgate_up_n2f;
      check_kernel<T>(backward, 12.0, 64.0);
    }
  }

  template <class T, template <class, class> class Forward, template <class, class> class Backward>
  void gelu(memory& mem, std::size_t n) {
    Forward<host_memory, T> forward{.n = n};
    forward.x_n = mem.template numbers<T>(n, -6.0, 6.0);
    forward.y_n = mem.template numbers<T>(n);
    check_kernel<T>(forward, 8.0, 6.0);
    Backward<host_memory, T> backward{.n = n};
    backward.x_n = mem.template numbers<T>(n, -6.0, 6.0);
    backward.dy_n = mem.template numbers<T>(n);
    backward.dx_n = mem.template numbers<T>(n);
    check_kernel<T>(backward, 12.0, 6.0);
    // in the memory of dy, and in that of x
    backward.dx_n = mem.copy(backward.dy_n);
    backward.dy_n = backward.dx_n;
    check_kernel<T>(backward, 12.0, 6.0);
    backward.dy_n = mem.template numbers<T>(n);
    backward.dx_n = mem.copy(backward.x_n);
    backward.x_n = backward.dx_n;
    check_kernel<T>(backward, 12.0, 6.0);
  }

  template <class T>
  void embeddings() {
    for (const auto& [n, c] : sizes({{1, 1}, {9, 37}, {40, 131}})) {
      constexpr std::size_t v = 11;  // fewer rows than tokens: rows are hit more than once
      for (const bool accumulate : {false, true}) {
        memory mem;
        kernel::embedding<host_memory, T> kernel{.n = n, .v = v, .c = c, .accumulate = accumulate};
        kernel.index_n = mem.tokens(n, v);
        kernel.table_vc = mem.numbers<T>(v * c);
        kernel.y_nc = mem.numbers<T>(n * c);
        check_kernel<T>(kernel, 1.0, 1.0);
      }
      memory mem;
      kernel::embedding_backward<host_memory, T> kernel{.n = n, .v = v, .c = c, .first = n == 7 ? 2 : 0};
      kernel.index_n = mem.tokens(n, v);
      kernel.dy_nc = mem.numbers<T>(n * c);
      kernel.dtable_vc = mem.numbers<T>(v * c);
      check_kernel<T>(kernel, 8.0, 4.0);
    }
    for (const std::size_t d : {std::size_t{2}, std::size_t{6}, std::size_t{34}}) {
      for (const bool inverse : {false, true}) {
        constexpr std::size_t n = 7, heads = 3, positions = 20;
        memory mem;
        kernel::rotary<host_memory, T> kernel{.n = n,
                                              .heads = heads,
                                              .d = d,
                                              .stride = heads * (d + 2) + 5,
                                              .head_stride = d + 2,
                                              .positions = positions,
                                              .inverse = inverse};
        kernel.position_n = mem.tokens(n, positions);
        kernel.cos_sin_pd = mem.numbers<float>(positions * d);
        kernel.x = mem.numbers<T>((n - 1) * kernel.stride + heads * (d + 2));
        check_kernel<T>(kernel, 2.0, 1.0);
      }
    }
  }

  template <class T>
  void experts() {
    using acc = accumulate_t<T>;
    struct size {
      std::size_t n, experts, choices, c;
    };
    const std::array<size, 4> expert_sizes{{{1, 1, 1, 1}, {7, 5, 3, 19}, {130, 8, 2, 37}, {67, 33, 6, 130}}};
    for (const auto [n, experts, choices, c] : expert_sizes) {
      const std::size_t slots = n * choices;
      const auto terms = static_cast<double>(experts);
      memory mem;
      kernel::expert_routing<host_memory, T> routing{.n = n, .experts = experts, .choices = choices};
      routing.logits_ne = mem.numbers<T>(n * experts, -3.0, 3.0);
      routing.probability_ne = mem.numbers<acc>(n * experts);
      routing.weight_nk = mem.numbers<acc>(slots);
      for (auto* places : {&routing.choice_nk, &routing.slot_nk, &routing.row_s}) *places = mem.tokens(slots, 9);
      routing.count_e = mem.tokens(experts, 9);
      check_kernel<T>(routing, terms, 4.0);
      routing.load_e = mem.numbers<acc>(experts);
      check_kernel<T>(routing, terms + static_cast<double>(n), static_cast<double>(n));
      // what follows reads what the reference has written
      for (const bool balanced : {false, true}) {
        kernel::expert_routing_backward<host_memory, T> backward{.n = n, .experts = experts, .choices = choices};
        backward.probability_ne = device_span<const acc, host_memory>(routing.probability_ne);
        backward.weight_nk = device_span<const acc, host_memory>(routing.weight_nk);
        backward.dweight_nk = mem.numbers<acc>(slots);
        if (balanced) backward.dprobability_e = mem.numbers<acc>(experts);
        backward.choice_nk = device_span<const token, host_memory>(routing.choice_nk);
        backward.dlogits_ne = mem.numbers<T>(n * experts);
        check_kernel<T>(backward, terms, 8.0);
        kernel::expert_combine<host_memory, T> combine{.n = n, .c = c, .choices = choices, .accumulate = balanced};
        combine.slot_nk = device_span<const token, host_memory>(routing.slot_nk);
        combine.weight_nk = mem.numbers<acc>(slots);
        combine.x_sc = mem.numbers<T>(slots * c);
        combine.y_nc = mem.numbers<T>(n * c);
        check_kernel<T>(combine, static_cast<double>(choices), static_cast<double>(choices) + 1.0);
        combine.weight_nk = {};
        check_kernel<T>(combine, static_cast<double>(choices), static_cast<double>(choices) + 1.0);
      }
      kernel::expert_combine_backward<host_memory, T> scatter{.n = n, .c = c, .choices = choices};
      scatter.slot_nk = device_span<const token, host_memory>(routing.slot_nk);
      scatter.weight_nk = device_span<const acc, host_memory>(routing.weight_nk);
      scatter.x_sc = mem.numbers<T>(slots * c);
      scatter.dy_nc = mem.numbers<T>(n * c);
      scatter.dx_sc = mem.numbers<T>(slots * c);
      scatter.dweight_nk = mem.numbers<acc>(slots);
      check_kernel<T>(scatter, static_cast<double>(c), std::sqrt(static_cast<double>(c)) + 1.0);
      scatter.dx_sc = mem.copy(scatter.x_sc);  // in place
      scatter.x_sc = scatter.dx_sc;
      check_kernel<T>(scatter, static_cast<double>(c), std::sqrt(static_cast<double>(c)) + 1.0);
      constexpr std::size_t layers = 3, v = 11;
      kernel::expert_balance<host_memory, T> balance{
          .n = n, .v = v, .layers = layers, .experts = experts, .weight = 0.25, .gradient_scale = 0.125};
      balance.count_le = mem.tokens(layers * experts, slots);
      balance.target_n = mem.tokens(n, v);
      balance.load_le = mem.numbers<acc>(layers * experts, 0.0, static_cast<double>(n));
      balance.loss_n = mem.numbers<acc>(n);
      balance.dprobability_e = mem.numbers<acc>(experts);
      check_kernel<T>(balance, terms * layers, terms * static_cast<double>(choices));
    }
  }

  template <class T>
  void elementwise() {
    for (const std::size_t n : {std::size_t{1}, std::size_t{67}, std::size_t{33333}}) {
      memory mem;
      for (const double factor : {1.0, -2.5}) {
        kernel::add<host_memory, T> sum{.n = n, .factor = factor};
        sum.x_n = mem.numbers<T>(n);
        sum.y_n = mem.numbers<T>(n);
        check_kernel<T>(sum, 1.0, std::abs(factor));
      }
      kernel::cast<host_memory, T, float> widen{.n = n};
      widen.x_n = mem.numbers<T>(n, -70000.0, 70000.0);
      widen.y_n = mem.fresh<float>(n);
      check_kernel<T>(widen, 0.0, 0.0);
      kernel::cast<host_memory, float, T> narrow{.n = n};
      narrow.x_n = mem.numbers<float>(n, -1e-5, 1e-5);
      narrow.y_n = mem.fresh<T>(n);
      check_kernel<T>(narrow, 0.0, 0.0);
      for (const bool accumulate : {false, true}) {
        kernel::dropout<host_memory, T> drop{
            .n = n, .probability = 0.3, .accumulate = accumulate, .random = {.seed = 5, .step = 2, .site = 9, .first = n + 1}};
        drop.x_n = mem.numbers<T>(n);
        drop.y_n = mem.numbers<T>(n);
        check_kernel<T>(drop, 1.0, 2.0);
        if (accumulate) continue;
        drop.y_n = mem.copy(drop.x_n);  // in place
        drop.x_n = drop.y_n;
        check_kernel<T>(drop, 1.0, 2.0);
      }
      kernel::dequantise_nf4<host_memory, T> numbers{.n = n};
      numbers.code_n2 = mem.numbers<std::uint8_t>(nf4::code_bytes(n), 0.0, 255.9);
      numbers.scale_k = mem.numbers<std::uint8_t>(nf4::scales(n), 0.0, 255.9);
      numbers.outer = mem.numbers<float>(nf4::outer_scales(n));
      numbers.y_n = mem.fresh<T>(n);
      // in fp32 also where T is wider
      check_kernel<T>(numbers, 1.0, 2.0 * std::max(1.0, number_traits<float>::unit_roundoff / number_traits<accumulate_t<T>>::unit_roundoff));
      kernel::sum_of_squares<host_memory, T> squares{.n = n};
      squares.x_n = mem.numbers<T>(n);
      squares.sum_1 = mem.fresh<double>(1);
      check_kernel<T>(squares, static_cast<double>(n), static_cast<double>(n));
    }
  }

  template <class T>
  void rows_apart() {
    for (const auto& [rows, columns, gap] : {std::array<std::size_t, 3>{1, 3, 0}, {7, 33, 5}, {300, 70, 1}, {5, 20000, 0}}) {
      memory mem;
      for (const bool accumulate : {false, true}) {
        const std::size_t x_stride = columns + gap, y_stride = columns + 2 * gap;
        kernel::copy_rows<host_memory, T> copy{
            .rows = rows, .columns = columns, .x_stride = x_stride, .y_stride = y_stride, .accumulate = accumulate};
        copy.x = mem.numbers<T>((rows - 1) * x_stride + columns);
        copy.y = mem.numbers<T>((rows - 1) * y_stride + columns);
        check_kernel<T>(copy, 1.0, accumulate ? 1.0 : 0.0);
      }
    }
  }

  template <class T>
  void attentions() {
    using acc = accumulate_t<T>;
    const std::array<kernel::attention_shape, 5> shapes{
        {{1, 1, 1, 1, 1}, {2, 5, 2, 1, 6}, {1, 67, 4, 2, 16}, {2, 130, 3, 3, 10}, {1, 150, 2, 1, 64}}};
    for (const kernel::attention_shape& s : shapes) {
      const std::size_t rows = s.b * s.t;
      const auto terms = static_cast<double>(s.t + s.d);
      // products of 16-bit numbers may round the probabilities to them first
      const double rounding = 1.0 + 0.01 * (number_traits<T>::unit_roundoff / number_traits<acc>::unit_roundoff - 1.0);
      for (int variant = 0; variant < 6; ++variant) {  // plain, packed rows with dropout, a window with slopes; then with ends
        const bool packed = variant % 3 == 1, windowed = variant % 3 == 2, ends = variant >= 3;
        memory mem;
        const double dropout = packed ? 0.2 : 0.0;
        const std::size_t window = windowed ? s.t / 4 + 1 : 0;
        device_span<float, host_memory> slopes{};
        if (windowed) {
          slopes = mem.fresh<float>(s.h);
          for (std::size_t h = 0; h < s.h; ++h) slopes.raw()[h] = 0.5f / static_cast<float>(h + 1);
        }
        device_span<token, host_memory> start{};
        if (packed) {  // two samples to a row, cut at a place that is no multiple of anything
          start = mem.fresh<token>(rows);
          for (std::size_t i = 0; i < rows; ++i) start.raw()[i] = static_cast<token>(i % s.t < s.t / 3 ? 0 : s.t / 3);
        }
        device_span<token, host_memory> end{};
        if (ends) {  // packed: the sample's end, or a place before it; else half of the row is seen by everyone
          end = mem.fresh<token>(rows);
          for (std::size_t i = 0; i < rows; ++i) {
            const std::size_t now = i % s.t, sample = packed && now < s.t / 3 ? s.t / 3 : s.t;
            const std::size_t seen = packed ? (i % 2 == 0 || sample < 2 ? sample : sample - 1) : std::max(now + 1, s.t / 2);
            end.raw()[i] = static_cast<token>(seen);
          }
        }
        kernel::attention<host_memory, T> forward{
            .shape = s, .scale = 0.5, .dropout = dropout, .window = window, .random = {.seed = 3, .step = 1, .site = 4, .first = 2}};
        forward.slope_h = slopes;
        forward.qkv = mem.numbers<T>(rows * s.row());
        forward.start_bt = start;
        forward.end_bt = end;
        forward.o_bthd = mem.numbers<T>(rows * s.h * s.d);
        forward.lse_bht = mem.numbers<acc>(rows * s.h);
        check_kernel<T>(forward, terms, 4.0 * rounding);
        kernel::attention_backward<host_memory, T> backward{
            .shape = s, .scale = 0.5, .dropout = dropout, .window = window, .random = forward.random};
        backward.slope_h = slopes;
        backward.qkv = forward.qkv;
        backward.start_bt = forward.start_bt;
        backward.end_bt = forward.end_bt;
        backward.o_bthd = device_span<const T, host_memory>(forward.o_bthd);
        backward.lse_bht = device_span<const acc, host_memory>(forward.lse_bht);
        backward.do_bthd = mem.numbers<T>(rows * s.h * s.d);
        backward.dqkv = mem.numbers<T>(rows * s.row());
        check_kernel<T>(backward, terms, 8.0 * std::sqrt(static_cast<double>(s.t)) * rounding);
        if (packed) continue;
        kernel::cached_attention<host_memory, T> cached{.shape = s, .capacity = s.t + 9, .scale = 0.5, .window = window};
        cached.slope_h = slopes;
        cached.qkv = mem.numbers<T>(rows * s.row());
        const auto length = mem.fresh<token>(s.b);
        for (std::size_t b = 0; b < s.b; ++b) length.raw()[b] = static_cast<token>(4 + 5 * b);
        cached.length_b = length;
        if (ends) {  // counted from the beginning of the cache
          const auto cache_end = mem.fresh<token>(rows);
          for (std::size_t i = 0; i < rows; ++i) cache_end.raw()[i] = end.raw()[i] + length.raw()[i / s.t];
          cached.end_bt = cache_end;
        }
        cached.k_cache = mem.numbers<T>(s.b * s.k * cached.capacity * s.d);
        cached.v_cache = mem.numbers<T>(s.b * s.k * cached.capacity * s.d);
        cached.o_bthd = mem.numbers<T>(rows * s.h * s.d);
        check_kernel<T>(cached, terms, 4.0 * rounding);
      }
    }
  }

  /// Blocks of two rows: on the diagonal, wholly seen, partly seen, and one of which only a window or packed rows leave something.
  template <class T>
  void attention_blocks() {
    using acc = accumulate_t<T>;
    struct blocks {
      kernel::attention_shape shape;
      kernel::place_block queries, keys;
    };
    const std::array<blocks, 4> all{{{{2, 12, 2, 1, 6}, {5, 0, 4, 5}, {6, 1, 4, 5}},
                                     {{1, 280, 4, 2, 16}, {140, 73, 200, 67}, {130, 0, 0, 130}},
                                     {{2, 300, 3, 3, 10}, {150, 20, 100, 130}, {140, 5, 60, 135}},
                                     {{1, 400, 2, 1, 64}, {160, 0, 240, 150}, {170, 10, 90, 155}}}};
    for (const auto& [s, queries, keys] : all) {
      const double terms = static_cast<double>(keys.count + s.d);
      const double rounding = 1.0 + 0.01 * (number_traits<T>::unit_roundoff / number_traits<acc>::unit_roundoff - 1.0);
      for (int variant = 0; variant < 4; ++variant) {  // plain, packed rows with dropout, a window with slopes, ends
        memory mem;
        kernel::attention_block<host_memory, T> forward{.shape = s,
                                                        .queries = queries,
                                                        .keys = keys,
                                                        .begins = queries.first == keys.first && variant % 2 == 0,
                                                        .scale = 0.5,
                                                        .dropout = variant == 1 ? 0.2 : 0.0,
                                                        .window = variant == 2 ? s.t / 3 : 0,
                                                        .random = {.seed = 3, .step = 1, .site = 4, .first = 2}};
        if (variant == 1 || variant == 3) {
          const auto bounds = mem.fresh<token>(s.b * s.t);
          for (std::size_t i = 0; i < bounds.size(); ++i) {
            const std::size_t now = i % s.t, sample = now < s.t / 2 ? 0 : s.t / 2;
            bounds.raw()[i] = static_cast<token>(variant == 1 ? sample : std::max(now + 1, s.t / 2));
          }
          (variant == 1 ? forward.start_bt : forward.end_bt) = device_span<const token, host_memory>(bounds);
        }
        if (variant == 2) {
          const auto slopes = mem.fresh<float>(s.h);
          for (std::size_t h = 0; h < s.h; ++h) slopes.raw()[h] = 0.5f / static_cast<float>(h + 1);
          forward.slope_h = slopes;
        }
        forward.qkv = mem.numbers<T>(s.b * queries.own * s.row());
        forward.kv = mem.numbers<T>(s.b * keys.own * 2 * s.k * s.d);
        forward.o_bthd = mem.numbers<acc>(s.b * queries.own * s.h * s.d);
        forward.lse_bht = mem.numbers<acc>(s.b * queries.own * s.h, 3.0, 6.0);
        check_kernel<T>(forward, terms, 8.0 * rounding);  // lse up to log(exp(6) + keys)
        kernel::attention_block_backward<host_memory, T> backward{.shape = s,
                                                                  .queries = queries,
                                                                  .keys = keys,
                                                                  .scale = 0.5,
                                                                  .dropout = forward.dropout,
                                                                  .window = forward.window,
                                                                  .random = forward.random};
        backward.qkv = forward.qkv;
        backward.kv = forward.kv;
        backward.start_bt = forward.start_bt;
        backward.end_bt = forward.end_bt;
        backward.slope_h = forward.slope_h;
        backward.o_bthd = mem.numbers<T>(s.b * queries.own * s.h * s.d);
        backward.lse_bht = mem.numbers<acc>(s.b * queries.own * s.h, 4.0, 7.0);
        backward.do_bthd = mem.numbers<T>(s.b * queries.own * s.h * s.d);
        backward.dq_bthd = mem.numbers<acc>(s.b * queries.own * s.h * s.d);
        backward.dkv = mem.numbers<acc>(s.b * keys.own * 2 * s.k * s.d);
        check_kernel<T>(backward, terms, 2.0 * std::sqrt(static_cast<double>(s.t)) * rounding);
      }
    }
  }

  template <class T>
  void losses() {
    using acc = accumulate_t<T>;
    struct size {
      std::size_t n, c, v;
    };
    const std::array<size, 5> loss_sizes{{{1, 1, 2}, {7, 5, 19}, {360, 16, 67}, {9, 40, 130}, {5, 3, 9000}}};
    for (const auto [n, c, v] : loss_sizes) {
      for (int mode = 0; mode < 6; ++mode) {  // loss alone, with a frozen weight, with everything; the same with a bias
        memory mem;
        kernel::linear_cross_entropy<host_memory, T> kernel{
            .n = n, .c = c, .v = v, .with_gradient = mode % 3 > 0, .gradient_scale = 0.125, .z_loss = mode == 1 ? 0.01 : 0.0};
        kernel.x_nc = mem.numbers<T>(n * c);
        kernel.weight_vc = mem.numbers<T>(v * c);
        kernel.target_n = mem.tokens(n, v);
        kernel.loss_n = mem.numbers<acc>(n);
        if (kernel.with_gradient) kernel.dx_nc = mem.numbers<T>(n * c);
        if (mode % 3 == 2) kernel.dweight_vc = mem.numbers<T>(v * c);
        if (mode >= 3) kernel.bias_v = mem.numbers<T>(v);
        if (mode == 5) kernel.dbias_v = mem.numbers<T>(v);
        // a logit that is off by one rounding may round its gradient to a neighbour in T
        const double gradient_rounding = number_traits<T>::unit_roundoff / number_traits<acc>::unit_roundoff;
        check_kernel<T>(kernel, static_cast<double>(c + v + n), std::sqrt(static_cast<double>(c)) + 2.0 + 0.01 * (gradient_rounding - 1.0));
      }
    }
    divided_losses<T>();
  }

  /// A vocabulary of three ranks, of which the second checks its part.
  template <class T>
  void divided_losses() {
    using acc = accumulate_t<T>;
    constexpr std::size_t ranks = 3;
    for (const auto& [n, v] : {std::pair<std::size_t, std::size_t>{1, 1}, {7, 19}, {130, 67}, {5, 3000}}) {
      memory mem;
      kernel::softmax_part<host_memory, acc> part{.n = n, .v = v, .first = static_cast<token>(v)};
      part.logits_nv = mem.numbers<acc>(n * v, -8.0, 8.0);
      part.target_n = mem.tokens(n, ranks * v);
      part.parts_3n = mem.numbers<acc>(3 * n);
      check_kernel<T>(part, static_cast<double>(v), 2.0);
      for (const bool with_gradient : {false, true}) {
        kernel::softmax_of_parts<host_memory, acc, T> whole{
            .n = n, .v = v, .ranks = ranks, .vocabulary = ranks * v, .first = static_cast<token>(v), .gradient_scale = 0.125};
        whole.parts_r3n = mem.numbers<acc>(ranks * 3 * n, 8.0, 9.0);  // sums are positive
        whole.target_n = part.target_n;
        whole.logits_nv = part.logits_nv;
        whole.loss_n = mem.numbers<acc>(n);
        if (with_gradient) whole.dlogits_nv = mem.numbers<T>(n * v);
        check_kernel<T>(whole, 8.0 * ranks, 32.0);
      }
    }
  }

  template <class T>
  void optimizers() {
    using acc = accumulate_t<T>;
    for (const std::size_t n : {std::size_t{1}, std::size_t{67}, std::size_t{20000}}) {
      for (const bool stochastic : {false, true}) {
        const random_site random{.seed = 11, .step = 3, .site = 1, .first = 6};
        const auto adamw = [&]<class M, class S>(bool master) {
          memory mem;
          kernel::adamw<host_memory, T, T, M, S> kernel{.n = n,
                                                        .learning_rate = 0.01,
                                                        .beta1 = 0.9,
                                                        .beta2 = 0.99,
                                                        .epsilon = 1e-8,
                                                        .weight_decay = 0.1,
                                                        .correction1 = 1.5,
                                                        .correction2 = 2.5,
                                                        .gradient_scale = 0.5,
                                                        .stochastic = stochastic,
                                                        .random = random};
          kernel.gradient_n = mem.numbers<T>(n);
          if (master) kernel.master_n = mem.numbers<M>(n);
          kernel.parameter_n = mem.numbers<T>(n);
          kernel.m_n = mem.numbers<S>(n);
          kernel.v_n = mem.numbers<S>(n, 0.1, 1.0);
          check_kernel<T>(kernel, 8.0, 2.0);
        };
        const auto sgd = [&]<class M, class S>(bool master, bool velocity) {
          memory mem;
          kernel::sgd<host_memory, T, T, M, S> kernel{.n = n,
                                                      .learning_rate = 0.01,
                                                      .momentum = 0.9,
                                                      .weight_decay = 0.1,
                                                      .gradient_scale = 0.5,
                                                      .stochastic = stochastic,
                                                      .random = random};
          kernel.gradient_n = mem.numbers<T>(n);
          if (master) kernel.master_n = mem.numbers<M>(n);
          kernel.parameter_n = mem.numbers<T>(n);
          if (velocity) kernel.velocity_n = mem.numbers<S>(n);
          check_kernel<T>(kernel, 8.0, 2.0);
        };
        adamw.template operator()<acc, acc>(true);
        sgd.template operator()<acc, acc>(true, true);
        adamw.template operator()<T, T>(false);
        sgd.template operator()<T, T>(false, false);
      }
    }
  }

  typename Device::context context_;
  typename Device::stream stream_;
  std::vector<conformance_result> results_;
};

}  // namespace xtrain::testing
