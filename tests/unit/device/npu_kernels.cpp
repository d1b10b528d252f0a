// Kernels of the device `npu`, composed of CANN's operators, on a fake that checks every documented contract.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <xtrain/device/npu/npu.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/fake_ascend_card.hpp>

using namespace xtrain;
using testing::fake_ascend_card;
using testing::fake_ascend_config;
using testing::fake_ascend_operators;
using testing::fake_ascend_operators_config;

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
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_clean(const fake_ascend_card& card) {
  CHECK(card.violations() == "");
  CHECK(card.leaks() == "");
}

using suite = testing::conformance<npu>;

template <class T>
void check_composed(suite& kernels) {
  testing::detail::check_products<T>(kernels);
  testing::detail::check_norms<T>(kernels);
  testing::detail::check_activations<T>(kernels);
  testing::detail::check_embeddings<T>(kernels);
  testing::detail::check_rows_apart<T>(kernels);
  testing::detail::check_attention<T>(kernels);
  testing::detail::check_losses<T>(kernels);
}

/// Of a few kernels that are enough to see what a setting changes.
template <class T>
void check_some(suite& kernels) {
  testing::detail::check_products<T>(kernels);
  testing::detail::check_norms<T>(kernels);
}

void report(const suite& kernels) {
  INFO(kernels.text());
  CHECK(kernels.passed());
}

}  // namespace

TEST_CASE("kernels of CANN's operators agree with the reference in fp32") {
  fake_ascend_card card;
  {
    suite kernels(card.open());
    check_composed<float>(kernels);
    testing::detail::check_optimizers<float>(kernels);
    testing::detail::check_elementwise<float>(kernels);
    report(kernels);
  }
  check_clean(card);
  CHECK(card.operators().launches() > 7000);
}

TEST_CASE("kernels of CANN's operators agree with the reference in bf16") {
  fake_ascend_card card;
  {
    suite kernels(card.open());
    check_composed<bf16>(kernels);
    testing::detail::check_optimizers<bf16>(kernels);
    testing::detail::check_elementwise<bf16>(kernels);
    report(kernels);
  }
  check_clean(card);
  CHECK(card.operators().launches() > 9000);
}

TEST_CASE("fused operators, other releases, and scores and logits in chunks change no kernel beyond its tolerance") {
  struct variant {
    fake_ascend_config card{};
    npu_operator_settings settings{.workspace_floor = 8192};
    bool in_chunks = false;
  };
  std::array<variant, 4> all{};
  all[0].settings.is_fused = true;
  all[1].card.version = {9, 0, 0};  // products are rounded before something is added to them, and have no fp32 result
  all[2].card.version = {8, 5, 0};
  all[3].settings.chunk_bytes = 20000;
  all[3].in_chunks = true;
  for (const variant& one : all) {
    fake_ascend_card card(one.card);
    {
      suite kernels(card.open(one.settings));
      check_some<bf16>(kernels);
      if (one.settings.is_fused) {
        testing::detail::check_activations<bf16>(kernels);
        testing::detail::case_memory mem;  // rows of 64 bytes
        kernel::swiglu_backward<host_memory, bf16> gated{.n = 3, .f = 32};
        gated.gate_up_n2f = mem.numbers<bf16>(3 * 64, -8.0, 8.0);
        gated.dy_nf = mem.numbers<bf16>(3 * 32);
        gated.dgate_up_n2f = mem.copy(gated.gate_up_n2f);  // in place
        gated.gate_up_n2f = gated.dgate_up_n2f;
        kernels.check_kernel<bf16>(gated, 12.0, 64.0);
      }
      if (one.settings.is_fused || one.in_chunks) {
        testing::detail::check_attention<bf16>(kernels);
        testing::detail::check_losses<bf16>(kernels);
      }
      if (one.in_chunks) {
        testing::detail::check_optimizers<bf16>(kernels);
        testing::detail::check_elementwise<bf16>(kernels);
      }
      report(kernels);
      const auto& launches = card.operators().launches_by_name();
      for (const char* const fused : {"aclnnRmsNorm", "aclnnRmsNormGrad", "aclnnLayerNorm", "aclnnLayerNormBackward", "aclnnSwiGlu", "aclnnSwiGluGrad",
                                      "aclnnGroupedMatmulAdd", "aclnnFlashAttentionScoreV2", "aclnnFlashAttentionScoreGradV2"})
        CHECK_MESSAGE(launches.contains(fused) == one.settings.is_fused, fused);
      CHECK(launches.contains("aclnnInplaceAddmm") == (one.card.version != cann_version{9, 0, 0}));
    }
    check_clean(card);
  }
}

namespace {

/// y += factor · x of some numbers, and what a test makes of it.
struct sum_of_numbers {
  static constexpr std::size_t n = 100;
  npu_context on;
  npu_stream stream{on};
  buffer<npu> x{on, n * sizeof(bf16), memory_role::other}, y{on, n * sizeof(bf16), memory_role::other};
  buffer<npu> scratch;
  kernel::add<npu_memory, bf16> add{.n = n, .factor = 3.0};

  explicit sum_of_numbers(const npu_context& device) : on(device), scratch(device, 1 << 20, memory_role::workspace) {
    stream.fill_zero(x.as<std::byte>().raw(), x.bytes());
    stream.fill_zero(y.as<std::byte>().raw(), y.bytes());
    add.x_n = x.as<bf16>();
    add.y_n = y.as<bf16>();
  }
  void run() { run_kernel(stream, add, scratch.as<std::byte>()); }
  [[nodiscard]] npu_view view(npu_type type, std::initializer_list<std::size_t> dims) const {
    return npu_view::dense(type, reinterpret_cast<std::uintptr_t>(x.as<std::byte>().raw()), dims);
  }
  [[nodiscard]] npu_view other(npu_type type, std::initializer_list<std::size_t> dims) const {
    return npu_view::dense(type, reinterpret_cast<std::uintptr_t>(scratch.as<std::byte>().raw()), dims);
  }
};

}  // namespace

TEST_CASE("each documented contract that is broken is refused with the documented code, and the error says who and what") {
  fake_ascend_card card;
  {
    sum_of_numbers with(card.open());
    const npu_operator_rules rules = npu_kernels::rules_of(with.on.properties());
    const auto says = [&](auto&& f, const std::string& what, const std::string& code) {
      npu_sequence sequence(with.stream.operators(), rules, with.stream.queue(), "tested",
                            reinterpret_cast<std::uintptr_t>(with.scratch.as<std::byte>().raw()) + 65536, (std::size_t{1} << 20) - 65536);
      const std::string text = what_is_thrown([&] { f(sequence); });
      INFO(text);
      CHECK(has(text, "npu: kernel tested: "));
      CHECK(has(text, what));
      CHECK(has(text, "(" + code + ")"));
    };
    const npu_type fp32 = npu_type::fp32, half = npu_type::bf16, whole = npu_type::int32;
    const npu_view a = with.view(fp32, {2, 3}), b = with.view(fp32, {3, 2}), c = with.other(fp32, {2, 2});
    says([&](auto& s) { s.run(npu_op::mm, a, a, c, 0); }, "aclnnMmGetWorkspaceSize(fp32 [2, 3], fp32 [2, 3], fp32 [2, 2]) failed", "161002");
    says([&](auto& s) { s.run(npu_op::mm, a, b, with.other(fp32, {2, 3}), 0); }, "a shape must be fp32[2,2]; given fp32[2,3]", "161002");
    says([&](auto& s) { s.run(npu_op::mm, a, b, c.with_strides({4, 1}), 0); }, "the result must be contiguous", "161002");
    says([&](auto& s) { s.run(npu_op::mm, a, b, c, 5); }, "cubeMathType", "161002");
    says([&](auto& s) { s.run(npu_op::addmm, npu_none{}, a, b, npu_scalar{1}, npu_scalar{1}, c, 0); }, "a tensor is null", "161001");
    says([&](auto& s) { s.run(npu_op::addmm, with.view(fp32, {2}), a, b, npu_scalar{1}, npu_scalar{1}, c, 4); }, "no broadcast self", "161002");
    says([&](auto& s) { s.run(npu_op::add, a, npu_none{}, npu_scalar{1}, with.other(fp32, {2, 3})); }, "a tensor is null", "161001");
    says([&](auto& s) { s.run(npu_op::mul, a, b, with.other(fp32, {2, 3})); }, "dims 3 and 2 cannot be broadcast", "161002");
    says([&](auto& s) { s.run(npu_op::mul, a, a, with.other(whole, {2, 3})); }, "a result of fp32 cannot become int32", "161002");
    says([&](auto& s) { s.run(npu_op::mul, a, a, a); }, "shares memory with another operand", "161002");
    says([&](auto& s) { s.run(npu_op::inplace_add, a, a.from(1), npu_scalar{1}); }, "shares part of the target's memory", "161002");
    says([&](auto& s) { s.run(npu_op::cast, a, half, with.other(fp32, {2, 3})); }, "dtype 27 must be the result's", "161002");
    says([&](auto& s) { s.run(npu_op::reduce_sum, a, npu_ints{2}, true, 0, with.other(fp32, {2, 1})); }, "dim 2 is out of range", "161002");
    says([&](auto& s) { s.run(npu_op::reduce_sum, a, npu_ints{1}, true, 27, with.other(fp32, {2, 1})); }, "dtype 27", "161002");
    says([&](auto& s) { s.run(npu_op::where, a, a, a, with.other(fp32, {2, 3})); }, "type fp32 is not supported", "161002");
    says([&](auto& s) { s.run(npu_op::embedding, a, with.view(fp32, {4}), with.other(fp32, {4, 3})); }, "type fp32 is not supported", "161002");
    says([&](auto& s) { s.run(npu_op::gelu, a, 2, with.other(fp32, {2, 3})); }, "approximate must be 0 or 1", "161002");
    says([&](auto& s) { s.run(npu_op::gelu_backward, a, a, "erf", with.other(fp32, {2, 3})); }, "approximate must be tanh or none", "161002");
    says([&](auto& s) { s.run(npu_op::rms_norm, a, with.view(fp32, {2}), 1e-5, with.other(fp32, {2, 3}), with.other(fp32, {2, 1}).from(64)); },
         "a shape must be fp32[3]", "561002");
    const npu_view q = with.view(half, {1, 2, 2, 4}), k = with.view(half, {1, 2, 1, 4}), o = with.other(half, {1, 2, 2, 4}),
                   statistic = with.other(fp32, {1, 2, 2, 8});
    const auto attend = [&](auto& s, const npu_view& keys, const npu_view& mask, const npu_view& largest, double keeps, int heads, const char* layout) {
      s.run(npu_op::flash_attention, q, keys, keys, npu_none{}, npu_none{}, npu_none{}, mask, npu_none{}, npu_none{}, npu_none{}, 0.5, keeps, 0, 0, heads,
            layout, 0, 1, 1, largest.from(64), statistic.from(256), o.from(4096), o);
    };
    const npu_view mask = with.view(npu_type::boolean, {2, 2});
    says([&](auto& s) { attend(s, k, with.view(npu_type::boolean, {1, 2}), statistic, 1.0, 2, "BSND"); }, "the mask must be of all scores: bool[1,2]",
         "561002");
    says([&](auto& s) { attend(s, k, with.view(half, {2, 2}), statistic, 1.0, 2, "BSND"); }, "type bf16 is not supported", "161002");
    says([&](auto& s) { attend(s, k, mask, statistic.as({1, 2, 2, 1}), 1.0, 2, "BSND"); }, "a shape must be fp32[1,2,2,8]", "561002");
    says([&](auto& s) { attend(s, k, mask, statistic, 0.0, 2, "BSND"); }, "keepProb must be in (0, 1]", "161002");
    says([&](auto& s) { attend(s, k, mask, statistic, 1.0, 4, "BSND"); }, "headNum must be the queries' heads", "561002");
    says([&](auto& s) { attend(s, with.view(half, {1, 2, 1, 5}), mask, statistic, 1.0, 2, "BSND"); }, "shapes differ", "561002");
    says([&](auto& s) { s.run(npu_op::grouped_matmul_add, q.as({2, 8}), q.as({2, 8}), with.view(whole, {1}), with.other(fp32, {8, 8}), true, false, 2); },
         "type int32 is not supported", "161002");
    const npu_view x = q.as({2, 8}), sum = with.other(fp32, {8, 8});
    says([&](auto& s) { s.run(npu_op::grouped_matmul_add, x, x, with.view(npu_type::int64, {1}), sum, false, false, 2); }, "only a transposed x", "161002");
    says([&](auto& s) { s.run(npu_op::swi_glu_grad, a, with.view(fp32, {2, 6}), -1, with.other(fp32, {2, 6})); }, "rows must be multiples of 64 bytes",
         "161002");
    const npu_view dx = with.other(fp32, {2, 3}), weight = with.view(fp32, {3}), dweight = with.other(fp32, {3}).from(64);
    says([&](auto& s) { s.run(npu_op::rms_norm_grad, a, a, with.view(fp32, {2, 1}), weight, dx, dweight); }, "a shape must be fp32[2]", "561002");
    says([&](auto& s) { s.run(npu_op::swi_glu, a, -1, with.other(fp32, {2, 1})); }, "the dim must be even", "161002");
    says([&](auto& s) { s.run(npu_op::arange, npu_scalar{0}, npu_scalar{4}, npu_scalar{1}, with.other(whole, {5})); }, "a shape must be int32[4]", "161002");
    // what is refused before a call
    const auto text = [&](auto&& f) {
      npu_sequence sequence(with.stream.operators(), rules, with.stream.queue(), "tested",
                            reinterpret_cast<std::uintptr_t>(with.scratch.as<std::byte>().raw()) + 65536, 4096);
      return what_is_thrown([&] { f(sequence); });
    };
    npu_view odd = a;
    odd.address += 2;
    CHECK(has(text([&](auto& s) { s.run(npu_op::inplace_zero, odd); }), "an operand must begin at a multiple of its element's 4 bytes"));
    CHECK(has(text([&](auto& s) { (void)s.fresh(fp32, {4096}); }), "scratch memory must be as large as planned"));
    // memory of another device, or of nobody
    npu_view nowhere = a;
    nowhere.address = std::uintptr_t{1} << 20;
    CHECK(has(text([&](auto& s) { s.run(npu_op::inplace_zero, nowhere); }), "aclnnInplaceZero(fp32 [2, 3]) failed"));
    with.stream.synchronize();
  }
  CHECK(has(card.violations(), "of memory that is not of device 0"));
  CHECK(card.leaks() == "");
}

TEST_CASE("a call that fails leaves no argument and no executor behind, wherever it fails") {
  fake_ascend_card card;
  {
    sum_of_numbers with(card.open());
    card.operators().reset_launches();
    with.run();
    with.stream.synchronize();
    const std::size_t calls = card.operators().launches();
    CHECK(calls == 3);  // widened, added to, rounded
    for (std::size_t n = 1; n <= calls; ++n) {
      card.operators().fail_call(n, npu_operator_status::no_kernel_package);
      const std::string text = what_is_thrown([&] { with.run(); });
      INFO(text);
      CHECK(has(text, "npu: kernel add: aclnn"));
      CHECK(has(text, "the operator's package is not installed for this chip (561112); CANN says: aclnn"));
      CHECK(card.operators().leaks() == "");
      with.stream.synchronize();
    }
  }
  check_clean(card);
}

TEST_CASE("a workspace that is larger than planned is refused before the operator runs") {
  fake_ascend_card card({}, {.most_workspace = 1 << 22});
  {
    sum_of_numbers with(card.open());
    std::string text;
    for (int i = 0; i < 5 && !has(text, "workspace"); ++i) text = what_is_thrown([&] { with.run(); });
    INFO(text);
    CHECK(has(text, "npu: kernel add: the workspace of aclnn"));
    CHECK(has(text, "must fit into what was planned; it needs "));
    CHECK(has(text, "raise npu_operator_settings::workspace_floor"));
    with.stream.synchronize();
  }
  check_clean(card);
}

TEST_CASE("a kernel whose operator is missing runs on the host, and is reported by name") {
  fake_ascend_card card({}, {.missing = {"aclnnInplaceAdd"}});
  {
    sum_of_numbers with(card.open());
    with.run();
    with.stream.synchronize();
    CHECK(card.operators().launches() == 0);
    CHECK(has(with.on.host_runs_text(), "  add: 1 runs on the host"));
    CHECK(has(with.on.operators_text(), "missing: aclnnInplaceAdd\n"));
    CHECK(has(with.on.operators_text(), "fake: aclnnMm "));
  }
  check_clean(card);
}

TEST_CASE("a kernel whose fused operator is missing is composed of elementary ones, in scratch memory that suffices for both") {
  fake_ascend_card card(
      {}, {.missing = {"aclnnRmsNorm", "aclnnRmsNormGrad", "aclnnFlashAttentionScoreV2", "aclnnFlashAttentionScoreGradV2", "aclnnLayerNorm"}});
  {
    const npu_context on = card.open({.is_fused = true, .workspace_floor = 8192});
    suite kernels(on);
    testing::detail::check_norms<bf16>(kernels);
    testing::detail::check_attention<bf16>(kernels);
    report(kernels);
    for (const npu_host_runs& one : on.host_runs()) CHECK_MESSAGE(one.kernel.find("norm") == std::string_view::npos, one.kernel);
    CHECK(card.operators().launches_by_name().contains("aclnnLayerNormBackward"));
  }
  check_clean(card);
}

TEST_CASE("sums of squares of large numbers are finite up to 1e19 each, and infinite where a square is") {
  fake_ascend_card card;
  {
    const npu_context on = card.open();
    npu_stream stream(on);
    constexpr std::size_t n = 1500;
    const auto sum_of = [&](float each) {
      const std::vector<float> values(n, each);
      const buffer<npu> x(on, n * sizeof(float), memory_role::other), sum(on, sizeof(double), memory_role::other);
      copy_to_device(stream, x.as<float>(), std::span<const float>(values));
      const kernel::sum_of_squares<npu_memory, float> squares{.n = n, .x_n = x.as<float>(), .sum_1 = sum.as<double>()};
      const buffer<npu> scratch(on, scratch_bytes(on.properties(), squares), memory_role::workspace);
      run_kernel(stream, squares, scratch.as<std::byte>());
      std::vector<double> result(1);
      copy_to_host(stream, std::span<double>(result), sum.as<double>());
      stream.synchronize();
      return result[0];
    };
    for (const float each : {1e-9f, 1.0f, 8e17f, 1e19f}) {
      const double right = static_cast<double>(n) * static_cast<double>(each) * static_cast<double>(each);
      CHECK(std::abs(sum_of(each) - right) <= static_cast<double>(n) * dtype_traits<float>::unit_roundoff * right);
    }
    CHECK(sum_of(2e19f) == std::numeric_limits<double>::infinity());
  }
  check_clean(card);
}

TEST_CASE("a product of 16-bit numbers is rounded to 16 bits, whatever the type of the result") {
  fake_ascend_card card;
  {
    const npu_context on = card.open();
    npu_stream stream(on);
    const buffer<npu> memory(on, 4096, memory_role::other), scratch(on, 1 << 20, memory_role::workspace);
    const std::uintptr_t base = reinterpret_cast<std::uintptr_t>(memory.as<std::byte>().raw());
    const npu_view x = npu_view::dense(npu_type::bf16, base, {1}), y = npu_view::dense(npu_type::fp32, base + 64, {1});
    const std::vector<bf16> from{static_cast<bf16>(1.0078125f)};
    copy_to_device(stream, memory.as<bf16>().subspan(0, 1), std::span<const bf16>(from));
    const npu_operator_rules rules = npu_kernels::rules_of(on.properties());
    npu_sequence sequence(stream.operators(), rules, stream.queue(), "tested", reinterpret_cast<std::uintptr_t>(scratch.as<std::byte>().raw()), 1 << 20);
    const auto read = [&] {
      std::vector<float> result(1);
      copy_to_host(stream, std::span<float>(result), memory.as<float>().subspan(16, 1));
      stream.synchronize();
      return result[0];
    };
    sequence.run(npu_op::mul, x, x, y);
    CHECK(read() == 1.015625f);  // 1.01568603515625
    sequence.run(npu_op::muls, x, npu_scalar{1.0078125}, y);
    CHECK(read() == 1.015625f);
    sequence.run(npu_op::addcmul, x, x, x, npu_scalar{1}, y);
    CHECK(read() == 2.03125f);  // 2.0234985..., halfway to even
  }
  check_clean(card);
}

TEST_CASE("the first chip leaves to the host what it cannot compute in fp32, and runs the rest") {
  fake_ascend_card card({.soc = "Ascend910A"});
  {
    const npu_context on = card.open();
    suite kernels(on);
    testing::detail::check_norms<fp16>(kernels);
    testing::detail::check_products<fp16>(kernels);
    report(kernels);
    CHECK(has(on.host_runs_text(), "  matmul: "));
    CHECK(!has(on.host_runs_text(), "norm"));
  }
  check_clean(card);
  CHECK(card.operators().launches() > 1000);
}

TEST_CASE("scratch memory does not grow when a kernel has fewer rows") {
  const npu_properties device{.cann = {9, 0, 0}, .operators = {.chunk_bytes = 4096}};
  const auto check = [&](auto kernel, auto&& set_rows) {
    std::size_t before = 0;
    for (const std::size_t n : std::array<std::size_t, 10>{0, 1, 2, 7, 8, 9, 31, 64, 65, 200}) {
      set_rows(kernel, n);
      const std::size_t bytes = scratch_bytes(device, kernel);
      CHECK(bytes >= before);
      before = bytes;
    }
    CHECK(before > 0);
  };
  const auto n_rows = [](auto& kernel, std::size_t n) { kernel.n = n; };
  check(kernel::rms_norm<npu_memory, bf16>{.c = 5}, n_rows);
  check(kernel::layer_norm_backward<npu_memory, bf16, float>{.c = 5}, n_rows);
  check(kernel::swiglu_backward<npu_memory, bf16>{.f = 7}, n_rows);
  check(kernel::linear_cross_entropy<npu_memory, bf16, float>{.c = 3, .v = 50, .with_gradient = true}, n_rows);
  check(kernel::adamw<npu_memory, bf16, float, float, float>{}, n_rows);
  check(kernel::matmul<npu_memory, bf16, float>{.n = 9, .k = 8}, [](auto& kernel, std::size_t n) { kernel.m = n; });
}

TEST_CASE("steps of optimizers and sums take their elements in parts: scratch memory does not grow with the model") {
  const npu_properties device{.cann = {9, 1, 0}};
  const std::size_t most = std::size_t{400} << 20, n = std::size_t{1} << 30;
  CHECK(scratch_bytes(device, kernel::adamw<npu_memory, bf16, float, float, float>{.n = n}) < most);
  CHECK(scratch_bytes(device, kernel::sgd<npu_memory, bf16, float, float, float>{.n = n}) < most);
  CHECK(scratch_bytes(device, kernel::lion<npu_memory, bf16, float, float, float>{.n = n}) < most);
  CHECK(scratch_bytes(device, kernel::sum_of_squares<npu_memory, float>{.n = n}) < most);
}
