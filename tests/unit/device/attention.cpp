// The cpu's attention backward does not depend on the number of threads.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/device/cpu/cpu.hpp>

using namespace xtrain;

namespace {

/// One sequence of 300 tokens in two samples, six query heads per key/value head: 10 panels of queries, 3 blocks of keys.
template <class T>
class problem {
 public:
  explicit problem(std::size_t kv_heads)
      : shape_{.b = 1, .t = 300, .h = 6 * kv_heads, .k = kv_heads, .d = 20}, qkv_(numbers(shape_.t * shape_.row(), 1)),
        d_o_(numbers(shape_.t * shape_.h * shape_.d, 2)), o_(d_o_.size()), lse_(shape_.t * shape_.h), start_(shape_.t) {
    for (std::size_t i = 130; i < shape_.t; ++i) start_[i] = 130;
    cpu::stream stream{cpu::context()};
    kernel::attention<host_memory, T> forward{.shape = shape_, .scale = 0.2, .dropout = 0.1, .random = random};
    forward.qkv = span_of(std::span<const T>(qkv_));
    forward.start_bt = span_of(std::span<const token>(start_));
    forward.o_bthd = span_of(std::span<T>(o_));
    forward.lse_bht = span_of(std::span<float>(lse_));
    run(stream, forward);
  }

  /// dqkv computed by `threads` threads of a pool.
  [[nodiscard]] std::vector<T> backward(const std::shared_ptr<executor>& pool, std::size_t threads) const {
    const cpu::context on({.threads = threads, .executor = pool});
    cpu::stream stream(on);
    std::vector<T> dqkv(qkv_.size(), T(9.0f));
    kernel::attention_backward<host_memory, T> kernel{.shape = shape_, .scale = 0.2, .dropout = 0.1, .random = random};
    kernel.qkv = span_of(std::span<const T>(qkv_));
    kernel.start_bt = span_of(std::span<const token>(start_));
    kernel.o_bthd = span_of(std::span<const T>(o_));
    kernel.lse_bht = span_of(std::span<const float>(lse_));
    kernel.do_bthd = span_of(std::span<const T>(d_o_));
    kernel.dqkv = span_of(std::span<T>(dqkv));
    run(stream, kernel);
    return dqkv;
  }

 private:
  static constexpr random_site random{.seed = 5, .step = 2, .site = 3, .first = 1};

  template <class Kernel>
  static void run(cpu::stream& stream, const Kernel& kernel) {
    std::vector<std::byte> scratch(scratch_bytes(stream.properties(), kernel));
    run_kernel(stream, kernel, span_of(std::span<std::byte>(scratch)));
  }
  static std::vector<T> numbers(std::size_t n, std::uint32_t site) {
    std::vector<T> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<T>(uniform_open(random_word({.seed = 11, .site = site}, i)) - 0.5f);
    return all;
  }

  kernel::attention_shape shape_;
  std::vector<T> qkv_, d_o_, o_;
  std::vector<float> lse_;
  std::vector<token> start_;
};

template <class T>
void check_threads() {
  const auto pool = std::make_shared<thread_pool>(16);
  for (const std::size_t kv_heads : {std::size_t{1}, std::size_t{3}}) {
    CAPTURE(kv_heads);
    const problem<T> attention(kv_heads);
    const std::vector<T> alone = attention.backward(pool, 1);
    for (const std::size_t threads : {std::size_t{2}, std::size_t{5}, std::size_t{16}}) {
      CAPTURE(threads);
      const std::vector<T> together = attention.backward(pool, threads);
      CHECK(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(T)) == 0);
    }
  }
}

}  // namespace

TEST_CASE("the backward of attention is the same, bit for bit, however few key/value heads many threads share") {
  check_threads<float>();
  check_threads<bf16>();
}
