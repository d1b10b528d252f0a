// Attention of the device `cuda` by cuDNN, on a fake of both: what is given to it and what is not, choices, captures, memory, and errors at every call.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/fake_cuda.hpp>
#include <xtrain/testing/fake_cudnn.hpp>

using namespace xtrain;
using testing::fake_attention_plan;
using testing::fake_cuda;
using testing::fake_cudnn;

namespace {

template <class F>
std::string what_is_thrown(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing";
}

void check_clean(const fake_cuda& gpu, fake_cudnn& dnn) {
  CHECK(gpu.violations() == "");
  CHECK(gpu.leaks() == "");
  CHECK(dnn.violations() == "");
  CHECK(dnn.leaks() == "");
}

/// A folder of choices, for one test.
struct cache_folder {
  cache_folder() { std::filesystem::remove_all(path); }
  ~cache_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  cache_folder(const cache_folder&) = delete;
  cache_folder& operator=(const cache_folder&) = delete;
  std::string path = (std::filesystem::temp_directory_path() / concat("xtrain_cudnn_", ::getpid())).string();
};

/// Attention forward and backward over values that are all 1 or 2: o of position i is the mean of the first i + 1 values of its sequence.
struct two_passes {
  static constexpr kernel::attention_shape shape{.b = 2, .t = 9, .h = 4, .k = 2, .d = 8};
  static constexpr std::size_t rows = shape.b * shape.t, values = rows * shape.row(), results = rows * shape.h * shape.d;
  explicit two_passes(const cuda_context& on)
      : device(on), qkv(on, values * 2, memory_role::other), o(on, results * 2, memory_role::other), lse(on, rows * shape.h * 4, memory_role::other),
        d_o(on, results * 2, memory_role::other), dqkv(on, values * 2, memory_role::other),
        scratch(on, std::max({std::size_t{1}, scratch_bytes(on.properties(), forward()), scratch_bytes(on.properties(), backward())}),
                memory_role::workspace),
        host(on, values * 2) {}
  [[nodiscard]] kernel::attention<cuda_memory, bf16> forward() const {
    kernel::attention<cuda_memory, bf16> k{.shape = shape, .scale = 0.5};
    k.qkv = qkv.as<bf16>();
    k.o_bthd = o.as<bf16>();
    k.lse_bht = lse.as<float>();
    return k;
  }
  [[nodiscard]] kernel::attention_backward<cuda_memory, bf16> backward() const {
    kernel::attention_backward<cuda_memory, bf16> k{.shape = shape, .scale = 0.5};
    k.qkv = qkv.as<bf16>();
    k.o_bthd = o.as<bf16>();
    k.lse_bht = lse.as<float>();
    k.do_bthd = d_o.as<bf16>();
    k.dqkv = dqkv.as<bf16>();
    return k;
  }
  [[nodiscard]] static float value(std::size_t position) { return position % 2 == 0 ? 1.0F : 2.0F; }
  void bring(cuda_stream& stream) {
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t j = 0; j < shape.row(); ++j) host.as<bf16>()[row * shape.row() + j] = bf16(j < shape.value_offset() ? 0.0F : value(row % shape.t));
    stream.copy_from_host(qkv.as<bf16>().raw(), host.as<bf16>().data(), values * 2);
    stream.synchronize();
    for (std::size_t i = 0; i < results; ++i) host.as<bf16>()[i] = bf16(1.0F);
    stream.copy_from_host(d_o.as<bf16>().raw(), host.as<bf16>().data(), results * 2);
    stream.synchronize();
  }
  void prepare(cuda_stream& stream) {
    stream.prepare(forward());
    stream.prepare(backward());
  }
  void queue(cuda_stream& stream) {
    run_kernel(stream, forward(), scratch.as<std::byte>());
    run_kernel(stream, backward(), scratch.as<std::byte>());
  }
  /// Scores are 0: p_ij = 1 / (i + 1), dv_j = Σ_i p_ij over the query heads of a group, dq = 0 because keys are 0.
  [[nodiscard]] bool is_right(cuda_stream& stream) {
    const auto fetch = [&](const void* from, std::size_t count) {
      stream.copy_to_host(host.as<bf16>().data(), from, count * 2);
      stream.synchronize();
    };
    const auto is_near = [](float got, double right) { return std::abs(static_cast<double>(got) - right) <= 0x1p-6 * (1 + std::abs(right)); };
    fetch(o.as<bf16>().raw(), results);
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::size_t j = 0; j <= row % shape.t; ++j) sum += static_cast<double>(value(j));
      for (std::size_t j = 0; j < shape.h * shape.d; ++j)
        if (!is_near(static_cast<float>(host.as<bf16>()[row * shape.h * shape.d + j]), sum / static_cast<double>(row % shape.t + 1))) return false;
    }
    fetch(dqkv.as<bf16>().raw(), values);
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::size_t i = row % shape.t; i < shape.t; ++i) sum += 2.0 / static_cast<double>(i + 1);
      for (std::size_t j = 0; j < shape.row(); ++j)
        if (!is_near(static_cast<float>(host.as<bf16>()[row * shape.row() + j]), j < shape.value_offset() ? 0.0 : sum)) return false;
    }
    return true;
  }

  cuda_context device;
  buffer<cuda> qkv, o, lse, d_o, dqkv, scratch;
  pinned_memory<cuda> host;
};

constexpr std::array<kernel::attention_shape, 6> shapes{
    {{1, 1, 1, 1, 8}, {2, 5, 2, 1, 8}, {1, 67, 4, 2, 16}, {2, 13, 3, 3, 10}, {2, 30, 3, 3, 24}, {1, 20, 2, 1, 256}}};

/// Each shape without and with a window.
template <class T>
void check_attention(testing::conformance<cuda>& suite) {
  const double rounding = 1.0 + 0.01 * (dtype_traits<T>::unit_roundoff / dtype_traits<float>::unit_roundoff - 1.0);  // p may be rounded to T
  for (const kernel::attention_shape& s : shapes)
    for (const std::size_t window : {std::size_t{0}, s.t / 2 + 1}) {
      testing::detail::case_memory mem;
      const std::size_t rows = s.b * s.t;
      const auto terms = static_cast<double>(s.t + s.d);
      kernel::attention<host_memory, T> forward{.shape = s, .scale = 0.5, .window = window};
      forward.qkv = mem.numbers<T>(rows * s.row());
      forward.o_bthd = mem.numbers<T>(rows * s.h * s.d);
      forward.lse_bht = mem.numbers<float>(rows * s.h);
      suite.template check_kernel<T>(forward, terms, 4.0 * rounding);
      kernel::attention_backward<host_memory, T> backward{.shape = s, .scale = 0.5, .window = window};
      backward.qkv = forward.qkv;
      backward.o_bthd = device_span<const T, host_memory>(forward.o_bthd);
      backward.lse_bht = device_span<const float, host_memory>(forward.lse_bht);
      backward.do_bthd = mem.numbers<T>(rows * s.h * s.d);
      backward.dqkv = mem.numbers<T>(rows * s.row());
      suite.template check_kernel<T>(backward, terms, 8.0 * std::sqrt(static_cast<double>(s.t)) * rounding);
    }
}

}  // namespace

TEST_CASE("kernels agree with the reference where cuDNN computes attention: grouped heads, odd lengths; windows and odd heads are our kernels'") {
  const cache_folder cache;
  fake_cuda gpu;
  fake_cudnn dnn(gpu, {.plans = {{.workspace_bytes = 1000}}});
  {
    const cuda_context on = dnn.open(cache.path);
    testing::conformance<cuda> suite(on);
    check_attention<bf16>(suite);
    check_attention<fp16>(suite);
    INFO(suite.text());
    CHECK(suite.passed());
    const std::string says = on.attention_text();
    INFO(says);
    CHECK(dnn.calls_of("propose") == 2 * 2 * (shapes.size() - 1));
    CHECK(says.find("attention_backward fp16 1 x 67, 4 heads of 16, 2 of keys: cuDNN's plan 1 of 1\n") != std::string::npos);
    CHECK(says.find("heads of 10") == std::string::npos);
  }
  check_clean(gpu, dnn);
}

TEST_CASE("attention that is more than causal over whole sequences is never given to cuDNN") {
  const kernel::attention_shape shape{.b = 2, .t = 9, .h = 4, .k = 2, .d = 8};
  using plain = kernel::attention<cuda_memory, bf16>;
  const auto shape_of = [](const plain& k) { return detail::attention_elsewhere<plain>::shape_of(k); };
  const plain whole{.shape = shape, .scale = 0.5};
  CHECK(shape_of(whole).has_value());
  const token some[1] = {};
  const float slopes[1] = {};
  const auto with = [&](auto&& change) {
    plain k = whole;
    change(k);
    return shape_of(k).has_value();
  };
  CHECK(!with([](plain& k) { k.dropout = 0.1; }));
  CHECK(!with([](plain& k) { k.window = 4; }));
  CHECK(!with([](plain& k) { k.softcap = 30; }));
  CHECK(!with([&](plain& k) { k.start_bt = span_of<const token, cuda_memory>(some, 1); }));
  CHECK(!with([&](plain& k) { k.end_bt = span_of<const token, cuda_memory>(some, 1); }));
  CHECK(!with([&](plain& k) { k.slope_h = span_of<const float, cuda_memory>(slopes, 1); }));
  CHECK(!with([](plain& k) { k.shape.d = 12; }));
  CHECK(!with([](plain& k) { k.shape.d = 264; }));
  CHECK(!with([](plain& k) { k.shape.t = 0; }));
  CHECK(!with([](plain& k) { k.shape.t = std::size_t{1} << 26; }));
  CHECK(!detail::attention_elsewhere<kernel::attention<cuda_memory, float>>::is_possible);
}

TEST_CASE("the fastest way to attend is chosen once, outside captures, and only among those that are right") {
  struct situation {
    std::vector<fake_attention_plan> plans;
    std::string says;
  };
  const situation situations[] = {
      {{{.milliseconds = 0.5}, {.milliseconds = 0.25}}, "cuDNN's plan 2 of 2, 0.25 ms; our kernel 1 ms"},
      {{{.milliseconds = 0.5}, {.milliseconds = 0.49}}, "cuDNN's plan 1 of 2, 0.5 ms; our kernel 1 ms"},  // no more than noise
      {{{.milliseconds = 20}}, "our kernel, 1 ms"},
      {{{.milliseconds = 0.1, .is_wrong = true}, {.milliseconds = 0.2, .fails = true}, {.milliseconds = 0.3, .is_built = false}, {.milliseconds = 0.5}},
       "cuDNN's plan 4 of 4, 0.5 ms; our kernel 1 ms; 1 of 4 plans are wrong"},
      {{{.is_built = false}}, "our kernel; CUDNN_STATUS_NOT_SUPPORTED"},
      {{{.workspace_bytes = 1 << 20}}, "our kernel; cuDNN needs 1048576 bytes of scratch memory, 1024 are expected"},
      {{}, "our kernel; cuDNN proposes none"},
  };
  for (const situation& one : situations) {
    const cache_folder cache;
    fake_cuda gpu;
    fake_cudnn dnn(gpu, {.plans = one.plans});
    {
      const cuda_context on = dnn.open(cache.path);
      two_passes passes(on);
      CHECK(on.attention_text() == "attention is not known yet: none was queued\n");
      cuda_stream stream(on);
      passes.bring(stream);
      passes.prepare(stream);
      const std::string says = on.attention_text();
      CHECK(says.starts_with(concat("cuDNN 9.19.0 by cudnn-frontend 1.32.0\nattention bf16 2 x 9, 4 heads of 8, 2 of keys: ", one.says,
                                    "\nattention_backward ")));
      const std::size_t asked = dnn.calls_of("propose"), ran = dnn.calls_of("run");
      stream.begin_capture();
      passes.queue(stream);
      const auto step = stream.end_capture();
      stream.replay(step);
      CHECK(passes.is_right(stream));
      passes.queue(stream);
      CHECK(passes.is_right(stream));
      CHECK(dnn.calls_of("propose") == asked);
      CHECK(dnn.calls_of("run") == ran + (one.says.starts_with("our kernel") ? 0 : 4));
      CHECK(gpu.loads_in_captures() == 0);
    }
    check_clean(gpu, dnn);
  }
}

TEST_CASE("attention that a capture has not prepared is our kernel's; choices are remembered by the library's version, and our kernels may be asked for") {
  const cache_folder cache;
  const auto said = [&](cuda_product_choice choice, std::string version, bool prepares, std::size_t most = std::size_t{1} << 20) {
    fake_cuda gpu;
    fake_cudnn dnn(gpu, {.plans = {{.milliseconds = 2}, {.milliseconds = 0.5}}, .version = std::move(version)});
    std::string says;
    {
      const cuda_context on(cuda_config{.device = 0,
                                        .runtime = &gpu.runtime(),
                                        .product_cache = cache.path,
                                        .attention = choice,
                                        .cudnn = &dnn.library(),
                                        .attention_workspace = most});
      two_passes passes(on);
      cuda_stream stream(on);
      passes.bring(stream);
      if (prepares) passes.prepare(stream);
      stream.begin_capture();
      passes.queue(stream);
      stream.replay(stream.end_capture());
      CHECK(passes.is_right(stream));
      CHECK(gpu.loads_in_captures() == (prepares ? 0 : 4));
      says = on.attention_text();
      passes.queue(stream);
      CHECK(passes.is_right(stream));
    }
    check_clean(gpu, dnn);
    const auto line = says.find("2 of keys: ");
    return line == std::string::npos ? says : says.substr(line + 11, says.find('\n', line) - line - 11);
  };
  using enum cuda_product_choice;
  CHECK(said(timed, "a 1", false) == "a 1\n2 captured calls of attention were not prepared: our kernel\n");
  CHECK(said(timed, "a 1", true) == "cuDNN's plan 2 of 2, 0.5 ms; our kernel 1 ms");
  CHECK(said(timed, "a 1", true) == "cuDNN's plan 2 of 2; known from an earlier run");
  CHECK(said(timed, "a 2", true) == "cuDNN's plan 2 of 2, 0.5 ms; our kernel 1 ms");
  CHECK(said(proposed, "a 1", true) == "cuDNN's plan 1 of 2");
  CHECK(said(own_kernels, "a 1", true) == "attention is our kernels': our kernels were asked for\n");
  CHECK(said(timed, "a 1", true, 1000) == "our kernel; cuDNN may need 1.00 KiB of scratch memory, attention_workspace is 1000 B");
  ::setenv("XTRAIN_CUDA_ATTENTION", "own", 1);
  CHECK(said(timed, "a 1", true) == "attention is our kernels': our kernels were asked for\n");
  ::setenv("XTRAIN_CUDA_ATTENTION", "best", 1);
  CHECK(what_is_thrown([&] { (void)said(timed, "a 1", true); }) == "cuda: XTRAIN_CUDA_ATTENTION must be timed, proposed or own; it is 'best'");
  ::unsetenv("XTRAIN_CUDA_ATTENTION");
  const fake_cuda gpu;
  CHECK(gpu.open().attention_text() == "attention is our kernels': the runtime is not the toolkit's\n");
}

TEST_CASE("choices of attention are in the folder that is given, also where products are our kernels'") {
  const cache_folder cache;
  fake_cuda gpu;
  fake_cudnn dnn(gpu);
  {
    const cuda_context on(cuda_config{.device = 0,
                                      .runtime = &gpu.runtime(),
                                      .products = cuda_product_choice::own_kernels,
                                      .product_cache = cache.path,
                                      .cudnn = &dnn.library()});
    two_passes passes(on);
    cuda_stream stream(on);
    passes.bring(stream);
    passes.prepare(stream);
  }
  check_clean(gpu, dnn);
  CHECK(std::filesystem::exists(cache.path + "/products"));
}

TEST_CASE("a dry run plans the scratch memory that cuDNN's attention has, and none where it is not asked") {
  const cuda_properties without, with{.attention_workspace = std::size_t{256} << 20};
  kernel::attention_backward<cuda_memory, bf16> k{.shape = {.b = 4, .t = 1024, .h = 12, .k = 12, .d = 64}};
  const std::size_t own = scratch_bytes(without, k);
  CHECK(own == 4 * 1024 * 12 * 4);
  // cuDNN 9.19 needs 100860160 bytes on sm_90, and 226689280 of the grouped heads
  CHECK(scratch_bytes(with, k) == own + 100860160 - 256 + 1024 + 255);
  k.shape = {.b = 2, .t = 2048, .h = 12, .k = 2, .d = 128};
  CHECK(scratch_bytes(with, k) == scratch_bytes(without, k) + 226689280 - 256 + 1024 + 255);
  const cuda_properties blackwell{.architecture = 100, .attention_workspace = std::size_t{256} << 20};
  CHECK(scratch_bytes(blackwell, k) == scratch_bytes(without, k) + 50528256 + 1024 + 255);
  k.shape.b = 3;  // more than 256 MiB: our kernel
  CHECK(scratch_bytes(with, k) == scratch_bytes(without, k));
  k.shape.b = 1;
  k.dropout = 0.1;
  CHECK(scratch_bytes(with, k) == scratch_bytes(without, k));
}

TEST_CASE("an error at any call of cuDNN before attention is queued means our kernel; at the call that queues it, a clear error") {
  const auto run = [](fake_cudnn& dnn, bool prepares) {
    const cache_folder cache;
    const cuda_context on = dnn.open(cache.path);
    two_passes passes(on);
    cuda_stream stream(on);
    passes.bring(stream);
    if (prepares) passes.prepare(stream);
    passes.queue(stream);
    if (!passes.is_right(stream)) throw std::logic_error("a wrong result, silently");
    stream.begin_capture();
    passes.queue(stream);
    stream.replay(stream.end_capture());
    if (!passes.is_right(stream)) throw std::logic_error("a wrong result, silently");
  };
  for (const bool prepares : {false, true}) {
    std::size_t calls = 0, errors = 0;
    {
      fake_cuda gpu;
      fake_cudnn dnn(gpu, {.plans = {{.milliseconds = 0.5}}});
      dnn.fail_call(0);
      run(dnn, prepares);
      calls = dnn.calls();
    }
    for (std::size_t n = 1; n <= calls; ++n) {
      fake_cuda gpu;
      fake_cudnn dnn(gpu, {.plans = {{.milliseconds = 0.5}}});
      dnn.fail_call(n);
      const std::string said = what_is_thrown([&] { run(dnn, prepares); });
      INFO("at ", n, " of ", calls, ": ", said);
      if (said != "nothing") {
        ++errors;
        CHECK((said == "cuda: cuDNN's attention bf16 2 x 9, 4 heads of 8, 2 of keys on device 0 failed: run fails" ||
               said == "cuda: cuDNN's attention_backward bf16 2 x 9, 4 heads of 8, 2 of keys on device 0 failed: run fails"));
      }
      check_clean(gpu, dnn);
    }
    CHECK(errors == 4);  // both passes, plain and captured
  }
}
