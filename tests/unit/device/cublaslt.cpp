// Products by cuBLASLt on a stand-in for it: which way is chosen, when, what is remembered, and errors at every call.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/fake_cublaslt.hpp>
#include <xtrain/testing/fake_cuda.hpp>
#include "fake_gpu_checks.hpp"

using namespace xtrain;
using testing::fake_algorithm;
using testing::fake_cublaslt;
using testing::fake_cuda;

namespace {

/// A folder of its own for choices among products.
struct cache_folder {
  cache_folder() { std::filesystem::create_directories(path); }
  ~cache_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  cache_folder(const cache_folder&) = delete;
  cache_folder& operator=(const cache_folder&) = delete;
  [[nodiscard]] std::string file() const {
    for (const auto& one : std::filesystem::recursive_directory_iterator(path))
      if (one.is_regular_file()) return one.path().string();
    return {};
  }
  std::string path = (std::filesystem::temp_directory_path() / concat("xtrain_products_", ::getpid())).string();
};

/// c = a · b + bias, of small whole numbers: exact in bf16, whoever computes it.
struct exact_product {
  static constexpr std::size_t m = 6, n = 8, k = 5;
  explicit exact_product(const cuda_context& on)
      : device(on), a(on, m * k * 2, memory_role::other), b(on, k * n * 2, memory_role::other), bias(on, n * 2, memory_role::other),
        c(on, m * n * 2, memory_role::other), scratch(on, scratch_bytes(on.properties(), kernel()), memory_role::workspace), host(on, 256) {}
  [[nodiscard]] kernel::matmul<cuda_memory, bf16> kernel() const {
    return {.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .a = a.as<bf16>(), .b = b.as<bf16>(), .bias_n = bias.as<bf16>(), .c = c.as<bf16>()};
  }
  void bring(cuda_stream& stream) {
    const auto put = [&](const buffer<cuda>& to, std::size_t count, int factor) {
      for (std::size_t i = 0; i < count; ++i) host.as<bf16>()[i] = bf16(static_cast<int>(i) % 7 * factor - 3);
      stream.copy_from_host(to.as<bf16>().raw(), host.as<bf16>().data(), count * 2);
      stream.synchronize();
    };
    put(a, m * k, 1);
    put(b, k * n, 2);
    put(bias, n, 5);
  }
  void queue(cuda_stream& stream) { run_kernel(stream, kernel(), scratch.as<std::byte>()); }
  [[nodiscard]] bool is_right(cuda_stream& stream) {
    stream.copy_to_host(host.as<bf16>().data(), c.as<bf16>().raw(), m * n * 2);
    stream.synchronize();
    const auto value = [](std::size_t i, int factor) { return static_cast<int>(i) % 7 * factor - 3; };
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        int right = value(j, 5);
        for (std::size_t l = 0; l < k; ++l) right += value(i * k + l, 1) * value(l * n + j, 2);
        if (static_cast<float>(host.as<bf16>()[i * n + j]) != static_cast<float>(right)) return false;
      }
    return true;
  }

  cuda_context device;
  buffer<cuda> a, b, bias, c, scratch;
  pinned_memory<cuda> host;
};

}  // namespace

TEST_CASE("kernels agree with the reference where cuBLASLt computes products: layouts, transposes, strides, alignments, bias, sums") {
  const cache_folder cache;
  fake_cuda gpu;
  fake_cublaslt blas(gpu, {.algorithms = {{.alignment = 16}, {.workspace_bytes = 1000, .alignment = 4}, {.milliseconds = 0.8}}});
  {
    testing::conformance<cuda> suite(blas.open(cache.path));
    for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
      suite.begin_operands_at(first);
      testing::detail::check_products<bf16>(suite);
      testing::detail::check_products<float>(suite);
    }
    INFO(suite.text());
    CHECK(suite.passed());
    CHECK(blas.calls_of("cublasLtMatmul") > 100);
  }
  check_clean(gpu);
  check_clean(blas);
}

TEST_CASE("the fastest way to multiply is chosen once, outside captures, and only among those that round once and are right") {
  struct situation {
    std::vector<fake_algorithm> algorithms;
    std::string says;
  };
  const std::string product = "cuBLASLt 13.1.0\nproduct bf16 6 x 8 x 5, bias: ";
  const situation situations[] = {
      {{{.milliseconds = 0.5}, {.milliseconds = 0.25}}, "cuBLASLt's proposal 2 of 2, 0.25 ms; our kernel 1 ms\n"},
      {{{.milliseconds = 0.5}, {.milliseconds = 0.49}}, "cuBLASLt's proposal 1 of 2, 0.5 ms; our kernel 1 ms\n"},  // no more than noise
      {{{.milliseconds = 2}}, "our kernel, 1 ms\n"},
      {{{.milliseconds = 0.1, .reduction = cublaslt_reduction::output_type}, {.milliseconds = 0.2, .reduction = cublaslt_reduction::in_place},
        {.milliseconds = 0.5, .reduction = cublaslt_reduction::compute_type}},
       "cuBLASLt's proposal 1 of 1, 0.5 ms; our kernel 1 ms\n"},
      {{{.milliseconds = 0.1, .workspace_bytes = std::size_t{1} << 30}}, "our kernel; cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED\n"},
      {{{.milliseconds = 0.1, .is_wrong = true}, {.milliseconds = 0.2, .fails = true}, {.milliseconds = 0.5}},
       "cuBLASLt's proposal 3 of 3, 0.5 ms; our kernel 1 ms; 1 of 3 proposals are wrong\n"},
  };
  for (const situation& one : situations) {
    const cache_folder cache;
    fake_cuda gpu;
    fake_cublaslt blas(gpu, {.algorithms = one.algorithms});
    {
      const cuda_context on = blas.open(cache.path);
      exact_product product_of_numbers(on);
      CHECK(on.products_text() == "products are not known yet: none was queued\n");
      cuda_stream stream(on);
      product_of_numbers.bring(stream);
      stream.prepare(product_of_numbers.kernel());
      CHECK(on.products_text() == product + one.says);
      CHECK(on.memory().of(memory_role::other) < 1000);
      const std::size_t asked = blas.calls_of("cublasLtMatmulAlgoGetHeuristic"), launched = gpu.calls_of("cudaLaunchKernel");
      stream.begin_capture();
      product_of_numbers.queue(stream);
      const auto step = stream.end_capture();
      stream.replay(step);
      CHECK(product_of_numbers.is_right(stream));
      product_of_numbers.queue(stream);
      CHECK(product_of_numbers.is_right(stream));
      CHECK(blas.calls_of("cublasLtMatmulAlgoGetHeuristic") == asked);
      CHECK(gpu.calls_of("cudaLaunchKernel") == launched + (one.says.starts_with("our kernel") ? 2 : 0));
      CHECK(gpu.loads_in_captures() == 0);
    }
    check_clean(gpu);
    check_clean(blas);
  }
}

TEST_CASE("products that a capture has not prepared are our kernel's; those of plain work the library's first proposal, until they are prepared") {
  const cache_folder cache;
  fake_cuda gpu;
  fake_cublaslt blas(gpu, {.algorithms = {{.milliseconds = 2}, {.milliseconds = 0.5}}});
  {
    const cuda_context on = blas.open(cache.path);
    exact_product numbers_of(on);
    cuda_stream stream(on);
    numbers_of.bring(stream);
    stream.begin_capture();
    numbers_of.queue(stream);
    stream.replay(stream.end_capture());
    CHECK(numbers_of.is_right(stream));
    CHECK(on.products_text() == "cuBLASLt 13.1.0\n1 captured products were not prepared: our kernel\n");
    numbers_of.queue(stream);
    CHECK(numbers_of.is_right(stream));
    CHECK(on.products_text().find("bias: cuBLASLt's proposal 1 of 2\n") != std::string::npos);
    CHECK(cache.file().empty());
    stream.prepare(numbers_of.kernel());
    CHECK(on.products_text().find("bias: cuBLASLt's proposal 2 of 2, 0.5 ms; our kernel 1 ms\n") != std::string::npos);
    numbers_of.queue(stream);
    CHECK(numbers_of.is_right(stream));
  }
  check_clean(gpu);
  check_clean(blas);
}

TEST_CASE("choices among products are remembered in a file, which is not trusted") {
  const cache_folder cache;
  const auto run = [&](fake_cuda& gpu, std::size_t version) {
    fake_cublaslt blas(gpu, {.algorithms = {{.milliseconds = 0.5}, {.milliseconds = 0.25}}, .version = version});
    std::string says;
    {
      const cuda_context on = blas.open(cache.path);
      exact_product product(on);
      cuda_stream stream(on);
      product.bring(stream);
      stream.prepare(product.kernel());
      stream.begin_capture();
      product.queue(stream);
      stream.replay(stream.end_capture());
      CHECK(product.is_right(stream));
      CHECK(gpu.loads_in_captures() == 0);
      says = on.products_text();
    }
    check_clean(blas);
    return says.substr(says.find("bias: ") + 6);
  };
  const auto fresh = [&](std::size_t version = 130100) {
    fake_cuda gpu;
    const std::string says = run(gpu, version);
    check_clean(gpu);
    return says;
  };
  const std::string timed = "cuBLASLt's proposal 2 of 2, 0.25 ms; our kernel 1 ms\n", known = "cuBLASLt's proposal 2 of 2; known from an earlier run\n";
  CHECK(fresh() == timed);
  CHECK(fresh() == known);
  CHECK(fresh(130200) == timed);  // another version: a file of its own
  std::filesystem::remove_all(std::filesystem::path(cache.file()).parent_path());
  CHECK(fresh() == timed);
  const std::string file = cache.file();
  const auto contents = [&] {
    std::ifstream from(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(from), {});
  };
  const std::string right = contents();
  CHECK(right.starts_with("xtrain products 1\nbf16-bf16-nnwb-6-8-5-5-8-8-"));
  std::string other = right;
  other[other.size() - 2] = other[other.size() - 2] == '0' ? '1' : '0';  // a digit of the algorithm
  for (const std::string& bad : {std::string(), std::string("xtrain products 2\n"), right.substr(0, right.size() - 9), other,
                                 right.substr(0, right.rfind(' ') + 1) + std::string(128, 'f') + "\n", std::string(1000, '\0'),
                                 right + std::string(5 << 20, 'x')}) {
    std::ofstream(file, std::ios::binary) << bad;
    const bool is_usable = bad.size() > right.size();  // but for the end
    CHECK(fresh() == (is_usable && bad.starts_with(right) ? known : timed));
    if (!is_usable) CHECK(contents() == right);
  }
  std::filesystem::remove_all(cache.path);
  std::ofstream(cache.path) << "a file where the folder should be";
  CHECK(fresh() == timed);
}

TEST_CASE("without cuBLASLt, without memory to time products, or where our kernels are asked for, our kernels compute them, and it is said why") {
  const auto said = [](auto&& open, std::size_t memory = std::size_t{256} << 20) {
    fake_cuda gpu({.memory = memory});
    fake_cublaslt blas(gpu);
    std::string says;
    {
      const cuda_context on = open(gpu, blas);
      exact_product product(on);
      cuda_stream stream(on);
      product.bring(stream);
      stream.prepare(product.kernel());
      product.queue(stream);
      CHECK(product.is_right(stream));
      says = on.products_text();
    }
    check_clean(gpu);
    check_clean(blas);
    return says;
  };
  const auto with = [](cuda_product_choice products) {
    return [products](fake_cuda& gpu, fake_cublaslt& blas) {
      return cuda_context(cuda_config{.device = 0,
                                      .runtime = &gpu.runtime(),
                                      .products = products,
                                      .cublaslt = &blas.library(),
                                      .product_cache = "/dev/null/no",
                                      .product_workspace = std::size_t{64} << 10});
    };
  };
  CHECK(said([](fake_cuda& gpu, fake_cublaslt&) { return gpu.open(); }) == "products are our kernels': the runtime is not the toolkit's\n");
  CHECK(said(with(cuda_product_choice::own_kernels)) == "products are our kernels': our kernels were asked for\n");
  ::setenv("XTRAIN_CUDA_PRODUCTS", "own", 1);
  CHECK(said(with(cuda_product_choice::timed)) == "products are our kernels': our kernels were asked for\n");
  ::unsetenv("XTRAIN_CUDA_PRODUCTS");
  CHECK(said(with(cuda_product_choice::timed), std::size_t{100} << 10) ==
        "cuBLASLt 13.1.0\nproduct bf16 6 x 8 x 5, bias: our kernel; there is no memory to time it\n");
  CHECK(said(with(cuda_product_choice::timed)).find("proposal 1 of 1, 0.5 ms") != std::string::npos);
  CHECK(said(with(cuda_product_choice::proposed)) == "cuBLASLt 13.1.0\nproduct bf16 6 x 8 x 5, bias: cuBLASLt's proposal 1 of 1\n");
  ::setenv("XTRAIN_CUDA_PRODUCTS", "fast", 1);
  CHECK(what_is_thrown([&] { (void)said(with(cuda_product_choice::timed)); }) == "cuda: XTRAIN_CUDA_PRODUCTS must be timed, proposed or own; it is 'fast'");
  ::unsetenv("XTRAIN_CUDA_PRODUCTS");
  const auto none = load_cublaslt("libcublasLt.so.none");
  CHECK(!none.library);
  CHECK(none.why.starts_with("cuBLASLt must be installed where the loader finds it (NVIDIA's package libcublas); libcublasLt.so.none cannot be loaded: "));
  CHECK(load_cublaslt("libc.so.6").why == "cuBLASLt must have cublasLtGetVersion; libc.so.6 has not");
}

TEST_CASE("an error at any call of cuBLASLt before a product is queued means our kernel; at the call that queues it, a clear error") {
  const auto run = [](fake_cublaslt& blas, bool prepares) {
    const cache_folder cache;
    const cuda_context on = blas.open(cache.path);
    exact_product product(on);
    cuda_stream stream(on);
    product.bring(stream);
    if (prepares) stream.prepare(product.kernel());
    product.queue(stream);
    if (!product.is_right(stream)) throw std::logic_error("a wrong result, silently");
    stream.begin_capture();
    product.queue(stream);
    stream.replay(stream.end_capture());
    if (!product.is_right(stream)) throw std::logic_error("a wrong result, silently");
  };
  for (const bool prepares : {false, true}) {
    std::size_t calls = 0;
    {
      fake_cuda gpu;
      fake_cublaslt blas(gpu, {.algorithms = {{.milliseconds = 0.5}, {.milliseconds = 0.25}}});
      blas.fail_call(0, 0);
      run(blas, prepares);
      calls = blas.calls();
    }
    CHECK(calls > (prepares ? 40 : 20));
    std::size_t errors = 0;
    for (const int status : {cublaslt_status::alloc_failed, cublaslt_status::execution_failed})
      for (std::size_t n = 1; n <= calls; ++n) {
        fake_cuda gpu;
        fake_cublaslt blas(gpu, {.algorithms = {{.milliseconds = 0.5}, {.milliseconds = 0.25}}});
        blas.fail_call(n, status);
        const std::string said = what_is_thrown([&] { run(blas, prepares); });
        INFO("at ", n, ": ", said);
        if (said != "nothing") {
          ++errors;
          CHECK(said == concat("cuda: cublasLtMatmul of bf16 6 x 8 x 5, bias on device 0 failed: ",
                               status == cublaslt_status::alloc_failed ? "CUBLAS_STATUS_ALLOC_FAILED" : "CUBLAS_STATUS_EXECUTION_FAILED"));
        }
        check_clean(gpu);
        check_clean(blas);
      }
    CHECK(errors == 8);  // a bias's address and a product, twice, of each status
  }
}

TEST_CASE("the real cuBLASLt, where it is installed, takes what a product is described by; without a GPU it makes no proposals") {
  for (const char* const file : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    const auto found = load_cublaslt(file);
    if (!found.library) {
      MESSAGE(found.why);
      continue;
    }
    const cuda_product_shape shape{.operands = cuda_number::bf16,
                                   .result = cuda_number::bf16,
                                   .has_bias = true,
                                   .m = 128,
                                   .n = 256,
                                   .k = 64,
                                   .lda = 64,
                                   .ldb = 256,
                                   .ldc = 256};
    detail::cublaslt_problem problem(*found.library, shape);
    std::string refused;
    try {
      (void)problem.proposals(nullptr, shape, &shape, 4096);
    } catch (const detail::cublaslt_refusal& refusal) {
      refused = refusal.why;
    }
    CHECK(refused.starts_with("cublasLtMatmulAlgoGetHeuristic: "));
  }
}

TEST_CASE("the fake of cuBLASLt finds what the library leaves undefined") {
  fake_cuda gpu({.devices = 2});
  fake_cublaslt blas(gpu);
  {
    const cuda_context on = gpu.open();
    cuda_stream stream(on);
    const buffer<cuda> memory(on, 64, memory_role::other);
    const cublaslt_library& library = blas.library();
    cublaslt_handle handle = nullptr;
    CHECK(library.create(&handle) == cublaslt_status::success);
    void *product = nullptr, *layout = nullptr, *wide = nullptr, *preference = nullptr;
    (void)library.product_create(&product, cublaslt_compute::fp32_pedantic, cublaslt_type::fp32);
    (void)library.layout_create(&layout, cublaslt_type::fp32, 4, 4, 4);
    (void)library.layout_create(&wide, cublaslt_type::fp32, 5, 4, 4);
    (void)library.preference_create(&preference);
    cublaslt_proposal proposal;
    int count = 0;
    const auto propose = [&](void* c) { return library.propose(handle, product, layout, layout, c, c, preference, 1, &proposal, &count); };
    const float one = 1;
    const auto multiply = [&](float* to, void* workspace = nullptr, std::size_t bytes = 0) {
      return library.multiply(handle, product, &one, memory.as<float>().raw(), layout, memory.as<float>().raw(), layout, &one, to, layout, to, layout,
                              &proposal.algorithm, workspace, bytes, stream.raw());
    };
    float* const inside = memory.as<float>().raw();
    const auto found = [&, seen = std::size_t{0}](int status) mutable {
      CHECK(status != cublaslt_status::success);
      const std::string all = blas.violations();
      return all.substr(std::exchange(seen, all.size()));
    };
    auto violation = found;
    CHECK(violation(multiply(inside)) == "cublasLtMatmul: the library proposed no such algorithm\n");
    CHECK(violation(propose(wide)) == "cublasLtMatmulAlgoGetHeuristic: a layout whose columns overlap\n");
    stream.begin_capture();
    CHECK(violation(propose(layout)) == "cublasLtMatmulAlgoGetHeuristic in a thread that captures\n");
    stream.cancel_capture();
    CHECK(propose(layout) == cublaslt_status::success);
    CHECK(multiply(inside) == cublaslt_status::success);
    stream.synchronize();
    CHECK(violation(multiply(inside + 1)) == "cublasLtMatmul: a write of d of 64 bytes outside what is allocated\n");
    CHECK(violation(multiply(inside, inside + 1, 4)) == "cublasLtMatmul: scratch memory that is not at a multiple of 16\n");
    (void)gpu.runtime().set_device(1);
    CHECK(violation(multiply(inside)) == "cublasLtMatmul: the handle is of another device than the thread's\n");
    (void)gpu.runtime().set_device(0);
    const std::int64_t transposed = 1;
    CHECK(violation(library.product_set(product, cublaslt_product::transpose_a, &transposed, 8)) ==
          "cublasLtMatmulDescSetAttribute: 8 bytes for an attribute of 4\n");
    const std::int32_t yes = 1;
    (void)library.product_set(product, cublaslt_product::transpose_a, &yes, 4);
    CHECK(violation(multiply(inside)) == "cublasLtMatmul: the algorithm is for another product\n");
    CHECK(blas.leaks() == "1 handles; 1 descriptors of products; 2 layouts; 1 preferences; ");
    (void)library.product_destroy(product);
    (void)library.layout_destroy(layout);
    (void)library.layout_destroy(wide);
    (void)library.preference_destroy(preference);
    (void)library.destroy(handle);
    CHECK(blas.leaks() == "");
  }
  check_clean(gpu);
}
