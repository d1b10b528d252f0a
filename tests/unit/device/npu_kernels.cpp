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
#include <xtrain/testing/npu_probe.hpp>

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
  testing::detail::check_attention_blocks<T>(kernels);
  testing::detail::check_experts<T>(kernels);
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
    testing::detail::check_sampling<float>(kernels);
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
  all[3].settings.chunk_bytes = 50000;
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
        testing::detail::check_experts<bf16>(kernels);
        testing::detail::check_attention<bf16>(kernels);
        testing::detail::check_losses<bf16>(kernels);
      }
      if (one.in_chunks) {
        testing::detail::check_attention_blocks<bf16>(kernels);
        testing::detail::check_optimizers<bf16>(kernels);
        testing::detail::check_elementwise<bf16>(kernels);
      }
      report(kernels);
      const auto& launches = card.operators().launches_by_name();
      for (const char* const fused : {"aclnnRmsNorm", "aclnnRmsNormGrad", "aclnnLayerNorm", "aclnnLayerNormBackward", "aclnnSwiGlu", "aclnnSwiGluGrad",
                                      "aclnnGroupedMatmulAdd", "aclnnFlashAttentionScoreV2", "aclnnFlashAttentionScoreGradV2", "aclnnMoeTokenPermute",
                                      "aclnnMoeTokenPermuteGrad", "aclnnMoeTokenUnpermute", "aclnnMoeTokenUnpermuteGrad"})
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

TEST_CASE("experts' operators and caches are refused what their documentation excludes") {
  fake_ascend_card card;
  {
    sum_of_numbers with(card.open());
    const npu_operator_rules rules = npu_kernels::rules_of(with.on.properties());
    const auto says = [&](auto&& f, const std::string& what, const std::string& code = "(161002)") {
      npu_sequence sequence(with.stream.operators(), rules, with.stream.queue(), "tested",
                            reinterpret_cast<std::uintptr_t>(with.scratch.as<std::byte>().raw()) + 65536, (std::size_t{1} << 20) - 65536);
      const std::string text = what_is_thrown([&] { f(sequence); });
      INFO(text);
      CHECK(has(text, what));
      CHECK(has(text, code));
    };
    const npu_type fp32 = npu_type::fp32, half = npu_type::bf16, whole = npu_type::int32;
    const auto at = [&](npu_type type, std::size_t byte, std::initializer_list<std::size_t> dims) {
      npu_view view = with.other(type, dims);
      view.address += byte;
      return view;
    };
    const npu_view x = with.view(half, {4, 3}), slot = at(whole, 0, {8}), choice = at(whole, 64, {4, 2}), weight = at(fp32, 128, {4, 2}),
                   rows = at(half, 256, {8, 3}), y = at(half, 512, {4, 3}), dx = at(half, 1024, {8, 3}), dweight = at(fp32, 2048, {4, 2});
    says([&](auto& s) { s.run(npu_op::moe_permute, x, weight, 0, false, rows, slot); }, "type fp32 is not supported");
    says([&](auto& s) { s.run(npu_op::moe_permute, x, choice, 0, false, y, slot); }, "a shape must be bf16[8,3]; given bf16[4,3]");
    says([&](auto& s) { s.run(npu_op::moe_permute, x, choice, 0, false, rows, weight.as({8})); }, "type fp32 is not supported");
    says([&](auto& s) { s.run(npu_op::moe_permute_grad, rows, slot, 513, false, y); }, "there may be 512 choices of a row");
    says([&](auto& s) { s.run(npu_op::moe_unpermute, rows, slot, x.as({4, 2}), false, npu_ints{1}, at(fp32, 512, {4, 3})); }, "type fp32 is not supported");
    says([&](auto& s) { s.run(npu_op::moe_unpermute, rows, slot.as({4}), weight, false, npu_ints{1}, y); }, "a shape must be int32[8]");
    says([&](auto& s) { s.run(npu_op::moe_unpermute, rows, slot, weight, false, npu_ints{1}, at(half, 512, {4, 3}).with_strides({4, 1})); },
         "the result must be contiguous");
    says([&](auto& s) { s.run(npu_op::moe_unpermute_grad, rows, y, slot, weight, false, npu_ints{1}, dx, at(half, 2048, {4, 2})); },
         "type bf16 is not supported");
    says([&](auto& s) { s.run(npu_op::moe_unpermute_grad, rows, at(half, 1536, {8, 3}), slot, weight, false, npu_ints{1}, dx, dweight); },
         "a shape must be bf16[4,3]");
    says([&](auto& s) { s.run(npu_op::cumsum, weight, 2, 0, dweight); }, "dim 2 is out of range");
    says([&](auto& s) { s.run(npu_op::cumsum, weight, 0, 27, dweight); }, "dtype 27 must be the result's");
    const npu_view cache = at(half, 4096, {2, 1, 4, 3}), place = at(whole, 0, {2}), added = at(half, 256, {2, 1, 5, 3});
    says([&](auto& s) { s.run(npu_op::inplace_scatter_update, cache, place, added, -2); }, "there are more rows than the target has");
    says([&](auto& s) { s.run(npu_op::inplace_scatter_update, cache, slot, added, -2); }, "a shape must be int32[2]");
    says([&](auto& s) { s.run(npu_op::inplace_scatter_update, cache, place, at(fp32, 256, {2, 1, 1, 3}), -2); }, "type fp32 is not supported");
    with.stream.synchronize();
  }
  CHECK(card.violations() == "");
  CHECK(card.leaks() == "");
}

namespace {

/// An operator called by the table, as no kernel would.
struct called {
  fake_ascend_operators fake;
  alignas(32) std::array<std::byte, 8192> workspace{};
  const npu_operators& table = fake.table();
  const std::int64_t two[2] = {2, 3};

  explicit called(fake_ascend_operators_config settings = {}) : fake(std::move(settings)) {}
  [[nodiscard]] aclTensor* tensor(npu_type type, void* data, std::int64_t columns = 3) const {
    const std::int64_t dims[2] = {2, columns}, storage = 2 * columns;
    return table.objects.create_tensor(dims, 2, static_cast<int>(type), nullptr, 0, 2, &storage, 1, data);
  }
  [[nodiscard]] std::string message() const {
    const char* const text = table.objects.recent_error();
    return text == nullptr ? "" : text;
  }
  template <class... Argument, class... Given>
  int size(const npu_operator<Argument...>& op, std::uint64_t* bytes, aclOpExecutor** made, Given... given) const {
    return reinterpret_cast<typename npu_operator<Argument...>::size_function>(table.entries[op.index].size)(static_cast<Argument>(given)..., bytes, made);
  }
  template <class Operator>
  int run(const Operator& op, void* with, std::uint64_t bytes, aclOpExecutor* of) const {
    return table.entries[op.index].run(with, bytes, of, nullptr);
  }
};

}  // namespace

TEST_CASE("tensors, executors and workspaces are used as documented, or the call is refused") {
  namespace status = npu_operator_status;
  called with;
  const auto create = with.table.objects.create_tensor;
  const auto destroy = with.table.objects.destroy_tensor;
  alignas(32) std::array<float, 64> x{}, y{};
  // tensors
  const std::array<std::int64_t, 9> nine{1, 1, 1, 1, 1, 1, 1, 1, 1};
  const std::int64_t storage = 6, back[2] = {-3, 1};
  const auto refused = [&](aclTensor* made, const char* why) {
    CHECK(made == nullptr);
    const std::string text = with.message();
    CHECK_MESSAGE(has(text, why), text);
  };
  refused(create(nine.data(), 9, 0, nullptr, 0, 2, &storage, 1, x.data()), "more than 8 dims");
  refused(create(with.two, 2, 99, nullptr, 0, 2, &storage, 1, x.data()), "unknown type");
  refused(create(with.two, 2, 0, nullptr, 0, 3, &storage, 1, x.data()), "the format must be ND");
  refused(create(with.two, 2, 0, nullptr, -1, 2, &storage, 1, x.data()), "a negative offset");
  refused(create(with.two, 2, 0, back, 0, 2, &storage, 1, x.data()), "a negative dim or stride");
  refused(create(with.two, 2, 0, nullptr, 1, 2, &storage, 1, x.data()), "the view is outside its storage");
  refused(create(with.two, 2, 0, nullptr, 0, 2, &storage, 1, x.data() + 1), "the address is not a multiple of 32");
  // first phase
  aclTensor *const from = with.tensor(npu_type::fp32, x.data()), *const to = with.tensor(npu_type::fp32, y.data());
  std::uint64_t bytes = 0;
  aclOpExecutor* made = nullptr;
  CHECK(with.size(npu_op::exp, nullptr, &made, from, to) == status::null_argument);
  CHECK(with.size(npu_op::exp, &bytes, nullptr, from, to) == status::null_argument);
  CHECK(with.size(npu_op::exp, &bytes, &made, nullptr, to) == status::null_argument);
  // second phase: an executor that needs a workspace
  const auto prepare = [&] {
    do {
      if (made != nullptr) CHECK(with.run(npu_op::exp, with.workspace.data(), with.workspace.size(), made) == status::success);
      REQUIRE(with.size(npu_op::exp, &bytes, &made, from, to) == status::success);
    } while (bytes == 0);
  };
  const auto fails = [&](int got, int expected, const char* why) {
    const std::string text = with.message();
    CHECK_MESSAGE(got == expected, text);
    CHECK_MESSAGE(has(text, why), text);
  };
  void* const workspace = with.workspace.data();
  CHECK(with.run(npu_op::exp, workspace, 0, nullptr) == status::null_executor);
  CHECK(with.table.objects.set_repeatable(nullptr) == status::null_executor);
  prepare();
  fails(with.run(npu_op::exp, workspace, bytes - 32, made), status::internal, "the workspace must have");
  prepare();
  fails(with.run(npu_op::exp, nullptr, bytes, made), status::internal, "the workspace is null");
  prepare();
  fails(with.run(npu_op::exp, with.workspace.data() + 8, bytes, made), status::internal, "the workspace is not aligned");
  prepare();
  fails(with.run(npu_op::exp, x.data(), bytes, made), status::internal, "the workspace shares memory with an operand");
  prepare();
  fails(with.run(npu_op::log, workspace, bytes, made), status::internal, "the executor is of aclnnExp");
  prepare();
  CHECK(with.run(npu_op::exp, workspace, bytes, made) == status::success);
  fails(with.run(npu_op::exp, workspace, bytes, made), status::internal, "an executor ran twice");
  made = nullptr;
  REQUIRE(with.size(npu_op::inplace_copy, &bytes, &made, to, from) == status::success);
  CHECK(with.table.objects.set_repeatable(made) == status::success);
  CHECK(with.run(npu_op::inplace_copy, workspace, with.workspace.size(), made) == status::success);
  fails(with.run(npu_op::inplace_copy, workspace, with.workspace.size(), made), status::internal, "an operator that copies ran twice");
  CHECK(with.table.objects.destroy_executor(made) == status::success);
  made = nullptr;
  prepare();
  CHECK(destroy(from) == status::success);
  fails(with.run(npu_op::exp, workspace, bytes, made), status::internal, "a tensor was destroyed between the phases");
  CHECK(destroy(from) == status::invalid_argument);
  CHECK(destroy(to) == status::success);
  CHECK(has(with.fake.violations(), "a tensor was destroyed twice, or never made"));
}

TEST_CASE("what the first chip, and releases before 9.1, do not have is refused with the documented code") {
  namespace status = npu_operator_status;
  alignas(32) std::array<float, 64> x{}, y{}, z{};
  std::uint64_t bytes = 0;
  aclOpExecutor* made = nullptr;
  {
    called with({.chip = npu_chip::first});
    aclTensor *const a = with.tensor(npu_type::fp32, x.data(), 2), *const b = with.tensor(npu_type::fp32, y.data(), 2);
    aclTensor* const c = with.tensor(npu_type::fp32, z.data(), 2);
    aclTensor *const half = with.tensor(npu_type::bf16, x.data(), 2), *const other = with.tensor(npu_type::bf16, y.data(), 2);
    CHECK(with.size(npu_op::exp, &bytes, &made, a, b) == status::no_kernel);
    CHECK(with.size(npu_op::swi_glu, &bytes, &made, a, std::int64_t{-1}, b) == status::no_kernel);
    CHECK(with.size(npu_op::tanh, &bytes, &made, half, other) == status::invalid_argument);
    CHECK(with.message() == "aclnnTanh: this chip has no bf16");
    for (const std::int8_t cube : {std::int8_t{0}, std::int8_t{3}}) CHECK(with.size(npu_op::mm, &bytes, &made, a, b, c, cube) == status::invalid_argument);
    for (const aclTensor* one : {a, b, c, half, other}) CHECK(with.table.objects.destroy_tensor(one) == status::success);
    CHECK(with.fake.leaks() == "");
  }
  {
    called with({.cann = {9, 0, 0}});
    aclTensor *const half = with.tensor(npu_type::fp16, x.data(), 2), *const other = with.tensor(npu_type::fp16, y.data(), 2);
    aclTensor* const c = with.tensor(npu_type::fp32, z.data(), 2);
    CHECK(with.size(npu_op::mm, &bytes, &made, half, other, c, std::int8_t{0}) == status::invalid_argument);
    CHECK(with.message() == "aclnnMm: an fp32 result of 16-bit factors needs CANN 9.1");
    for (const aclTensor* one : {half, other, c}) CHECK(with.table.objects.destroy_tensor(one) == status::success);
    CHECK(with.fake.leaks() == "");
  }
}

TEST_CASE("indices that are not rows of a table are found where the operator runs") {
  alignas(32) std::array<float, 64> table{}, rows{};
  alignas(32) std::array<std::int32_t, 8> index{-1, 7};
  std::uint64_t bytes = 0;
  aclOpExecutor* made = nullptr;
  called with;
  const std::int64_t two = 2, six = 6, dims[2] = {2, 3};
  aclTensor* const of = with.table.objects.create_tensor(&two, 1, static_cast<int>(npu_type::int32), nullptr, 0, 2, &two, 1, index.data());
  aclTensor *const from = with.tensor(npu_type::fp32, table.data()),
                   *const to = with.table.objects.create_tensor(dims, 2, 0, nullptr, 0, 2, &six, 1, rows.data());
  REQUIRE(with.size(npu_op::embedding, &bytes, &made, from, of, to) == npu_operator_status::success);
  CHECK(with.run(npu_op::embedding, with.workspace.data(), with.workspace.size(), made) == 507015);
  CHECK(with.message() == "aclnnEmbedding: a negative index");
  index[0] = 0;  // too large: no error, and no number
  REQUIRE(with.size(npu_op::embedding, &bytes, &made, from, of, to) == npu_operator_status::success);
  CHECK(with.run(npu_op::embedding, with.workspace.data(), with.workspace.size(), made) == npu_operator_status::success);
  CHECK(std::isnan(rows[3]));
  REQUIRE(with.size(npu_op::embedding_backward, &bytes, &made, to, of, 2, ~std::uint64_t{0}, false, from) == npu_operator_status::success);
  CHECK(with.run(npu_op::embedding_backward, with.workspace.data(), with.workspace.size(), made) == 507015);
  for (const aclTensor* one : {of, from, to}) CHECK(with.table.objects.destroy_tensor(one) == npu_operator_status::success);
  CHECK(with.fake.leaks() == "");
  CHECK(with.fake.violations() == "");
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
    CHECK(has(testing::unverified_operators(with.on), "unverified  aclnnMaxDim: the first of equal elements (z_loss) (fake)\n"));
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

TEST_CASE("attention's scratch memory does not grow with the square of the sequence") {
  const npu_properties device{.cann = {9, 1, 0}};
  const std::size_t chunk = device.operators.chunk_bytes;
  const auto need = [&](std::size_t t, auto kernel) {
    kernel.shape = {.b = 1, .t = t, .h = 32, .k = 8, .d = 128};
    if constexpr (requires { kernel.capacity; }) {
      kernel.capacity = t;
      kernel.shape.t = t / 4;
    }
    if constexpr (requires { kernel.queries; }) kernel.queries = kernel.keys = {t, 0, 0, t};
    return scratch_bytes(device, kernel);
  };
  const auto check = [&](auto kernel) {
    // scores are in parts of chunk_bytes; two of them, copies of rows, and the mask may be in a workspace
    const std::size_t most = 3 * chunk, of_rows = std::size_t{32768} * 128 * sizeof(float);
    const std::size_t bytes = need(32768, kernel);
    MESSAGE(decltype(kernel)::name, ": ", bytes >> 20, " MiB");
    CHECK(bytes > chunk);
    CHECK(bytes < most + 16 * of_rows);
    CHECK(need(65536, kernel) < bytes + 16 * of_rows);
  };
  static std::array<std::byte, 64> place{};
  const auto any = [&]<class T>(auto& operand, T*) { operand = span_of<T, npu_memory>(reinterpret_cast<T*>(place.data()), 1); };
  kernel::attention<npu_memory, bf16> forward{};
  any(forward.o_bthd, static_cast<bf16*>(nullptr));
  check(forward);
  kernel::attention_backward<npu_memory, bf16> backward{};
  any(backward.dqkv, static_cast<bf16*>(nullptr));
  check(backward);
  check(kernel::attention_block<npu_memory, bf16>{.begins = true});
  check(kernel::attention_block_backward<npu_memory, bf16>{});
  kernel::cached_attention<npu_memory, bf16> cached{};
  any(cached.o_bthd, static_cast<bf16*>(nullptr));
  check(cached);
}

TEST_CASE("steps of optimizers and sums take their elements in parts: scratch memory does not grow with the model") {
  const npu_properties device{.cann = {9, 1, 0}};
  const std::size_t most = std::size_t{400} << 20, n = std::size_t{1} << 30;
  CHECK(scratch_bytes(device, kernel::adamw<npu_memory, bf16, float, float, float>{.n = n}) < most);
  CHECK(scratch_bytes(device, kernel::sgd<npu_memory, bf16, float, float, float>{.n = n}) < most);
  CHECK(scratch_bytes(device, kernel::lion<npu_memory, bf16, float, float, float>{.n = n}) < most);
  CHECK(scratch_bytes(device, kernel::sum_of_squares<npu_memory, float>{.n = n}) < most);
}
