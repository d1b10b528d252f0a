#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/ops/activation.hpp>
#include <xtrain/ops/attention.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/ops/experts.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/nf4.hpp>
#include <xtrain/ops/row_integers.hpp>
#include <xtrain/ops/norm.hpp>
#include <xtrain/ops/optimizer.hpp>
#include <xtrain/tensor/tensor.hpp>

using namespace xtrain;

namespace {

struct bench {
  cpu::context on;
  cpu::stream stream{on};
  arena<cpu> workspace{on, std::size_t{1} << 22, memory_role::workspace};
  execution<cpu> where{stream, workspace, on.properties()};
  arena<cpu> memory{on, std::size_t{1} << 22, memory_role::other};

  matrix_view<float, host_memory> matrix(std::size_t rows, std::size_t columns) {
    return {memory.take<float>(rows * columns), {rows, columns}};
  }
  vector_view<float, host_memory> vector(std::size_t n) { return {memory.take<float>(n), {n}}; }
  vector_view<token, host_memory> tokens(std::size_t n) {
    const auto span = memory.take<token>(n);
    std::fill(span.host().begin(), span.host().end(), 0);
    return {span, {n}};
  }
};

void refuses(const std::string& words, const std::function<void(bench&)>& call) {
  bench b;
  CHECK_THROWS_WITH_AS(call(b), doctest::Contains(words.c_str()), shape_error);
}

}  // namespace

TEST_CASE("matrix products name what does not fit") {
  refuses("linear: w_oi: must have shape [4, 3]; given [4, 5]",
          [](bench& b) { ops::linear(b.where, b.matrix(2, 3), b.matrix(4, 5), {}, b.matrix(2, 4)); });
  refuses("linear: y_no: must have shape [2, 4]; given [3, 4]",
          [](bench& b) { ops::linear(b.where, b.matrix(2, 3), b.matrix(4, 3), {}, b.matrix(3, 4)); });
  refuses("linear: bias_o", [](bench& b) { ops::linear(b.where, b.matrix(2, 3), b.matrix(4, 3), b.vector(3), b.matrix(2, 4)); });
  refuses("linear_backward_input: dx_ni",
          [](bench& b) { ops::linear_backward_input(b.where, b.matrix(2, 4), b.matrix(4, 3), b.matrix(2, 4)); });
  refuses("linear_backward_weight: dw_oi",
          [](bench& b) { ops::linear_backward_weight(b.where, b.matrix(2, 4), b.matrix(2, 3), b.matrix(3, 4)); });
  refuses("bias_backward: dbias_o", [](bench& b) { ops::bias_backward(b.where, b.matrix(2, 4), b.vector(2)); });
}

TEST_CASE("normalisations name what does not fit") {
  refuses("rms_norm: weight_c: must have shape [3]; given [4]",
          [](bench& b) { ops::rms_norm(b.where, b.matrix(2, 3), b.vector(4), 1e-5, b.matrix(2, 3), b.vector(2)); });
  refuses("rms_norm: rstd_n", [](bench& b) { ops::rms_norm(b.where, b.matrix(2, 3), b.vector(3), 1e-5, b.matrix(2, 3), b.vector(3)); });
  refuses("layer_norm: mean_n", [](bench& b) {
    ops::layer_norm(b.where, b.matrix(2, 3), b.vector(3), b.vector(3), 1e-5, b.matrix(2, 3), b.vector(3), b.vector(2));
  });
  refuses("rms_norm_backward: dx_nc", [](bench& b) {
    ops::rms_norm_backward(b.where, b.matrix(2, 3), b.vector(3), b.vector(2), b.matrix(2, 3), b.matrix(2, 4), b.vector(3));
  });
}

TEST_CASE("numbers of four bits name what does not fit") {
  refuses("dequantize: y_n: must have shape [6]; given [5]",
          [](bench& b) { ops::dequantize(b.where, row_integers_view<host_memory>{.rows = 2, .columns = 3}, b.vector(5)); });
  refuses("dequantize: y_n: must have shape [64]; given [63]",
          [](bench& b) { ops::dequantize(b.where, nf4_view<host_memory>{.n = 64}, b.vector(63)); });
}

TEST_CASE("activations, embeddings and rotations name what does not fit") {
  refuses("gelu_tanh: y_nf", [](bench& b) { ops::gelu_tanh(b.where, b.matrix(2, 3), b.matrix(2, 4)); });
  refuses("softcap: y_nv", [](bench& b) { ops::softcap(b.where, b.matrix(2, 3), 2.0, b.matrix(2, 4)); });
  refuses("softcap_backward: d_nv", [](bench& b) { ops::softcap_backward(b.where, b.matrix(2, 3), 2.0, b.matrix(2, 4)); });
  refuses("swiglu: gate_up_n2f: must have shape [2, 6]; given [2, 3]",
          [](bench& b) { ops::swiglu(b.where, b.matrix(2, 3), b.matrix(2, 3)); });
  refuses("embedding: y_nc", [](bench& b) { ops::embedding(b.where, b.tokens(2), b.matrix(5, 3), b.matrix(3, 3)); });
  refuses("rotary: rotary_dim must be even and at most the head dim of 4; given 3",
          [](bench& b) { ops::rotary(b.where, b.tokens(2), b.matrix(8, 3), 1, 4, b.matrix(2, 4)); });
  refuses("rotary: x must have 2 rows with room for 2 heads of 4",
          [](bench& b) { ops::rotary(b.where, b.tokens(2), b.matrix(8, 4), 2, 4, b.matrix(2, 7)); });
  refuses("copy_rows: y: must have shape [2, 3]; given [2, 4]",
          [](bench& b) { ops::copy_rows(b.where, b.matrix(2, 3), b.matrix(2, 4)); });
  refuses("add: y", [](bench& b) { ops::add(b.where, b.matrix(2, 3), b.matrix(3, 2)); });
}

TEST_CASE("attention and losses name what does not fit") {
  const ops::attention_shape uneven{1, 2, 3, 2, 4}, good{1, 2, 2, 1, 4};
  refuses("attention: query heads (3) must be divisible by key/value heads (2)",
          [&](bench& b) { ops::attention(b.where, uneven, {}, b.matrix(2, 28), {}, b.matrix(2, 12), b.vector(6)); });
  refuses("attention: qkv must have shape [2, 16]; given [2, 12]",
          [&](bench& b) { ops::attention(b.where, good, {}, b.matrix(2, 12), {}, b.matrix(2, 8), b.vector(4)); });
  refuses("attention: lse_bht", [&](bench& b) { ops::attention(b.where, good, {}, b.matrix(2, 16), {}, b.matrix(2, 8), b.vector(2)); });
  refuses("linear_cross_entropy: weight_vc",
          [](bench& b) { ops::linear_cross_entropy(b.where, b.matrix(2, 3), b.matrix(5, 4), b.tokens(2), b.vector(2)); });
  refuses("linear_cross_entropy: target_n",
          [](bench& b) { ops::linear_cross_entropy(b.where, b.matrix(2, 3), b.matrix(5, 3), b.tokens(3), b.vector(2)); });
}

TEST_CASE("routing and its like name what does not fit") {
  const auto routes = [](bench& b, std::size_t n, std::size_t e, std::size_t k) {
    const auto places = [&] { return b.tokens(n * k).reshaped<2>({n, k}); };
    return ops::expert_routes<cpu, float>{b.matrix(n, e), places(), b.matrix(n, k), places(), b.tokens(n * k)};
  };
  const auto slots = [](bench& b, std::size_t n, std::size_t k) { return b.tokens(n * k).reshaped<2>({n, k}); };
  refuses("expert_routing: a token must choose at least one and at most 3 experts; given 4",
          [&](bench& b) { ops::expert_routing(b.where, b.matrix(2, 3), routes(b, 2, 3, 4), b.tokens(3)); });
  refuses("expert_routing: probability_ne: must have shape [2, 3]; given [2, 4]",
          [&](bench& b) { ops::expert_routing(b.where, b.matrix(2, 3), routes(b, 2, 4, 2), b.tokens(3)); });
  refuses("expert_routing: count_e", [&](bench& b) { ops::expert_routing(b.where, b.matrix(2, 3), routes(b, 2, 3, 2), b.tokens(2)); });
  refuses("expert_routing: counted_e",
          [&](bench& b) { ops::expert_routing(b.where, b.matrix(2, 3), routes(b, 2, 3, 2), b.tokens(3), b.vector(3), b.tokens(2)); });
  refuses("expert_routing: target_n", [&](bench& b) {
    ops::expert_routing(b.where, b.matrix(2, 3), routes(b, 2, 3, 2), b.tokens(3), b.vector(3), b.tokens(3), b.tokens(3));
  });
  refuses("expert_routing_backward: target_n", [&](bench& b) {
    ops::expert_routing_backward(b.where, routes(b, 2, 3, 2), b.matrix(2, 2), {}, b.matrix(2, 3), b.tokens(3));
  });
  refuses("expert_routing_backward: dweight_nk: must have shape [2, 2]; given [2, 3]",
          [&](bench& b) { ops::expert_routing_backward(b.where, routes(b, 2, 3, 2), b.matrix(2, 3), {}, b.matrix(2, 3)); });
  refuses("expert_combine: x_sc: must have shape [4, 5]; given [3, 5]",
          [&](bench& b) { ops::expert_combine(b.where, slots(b, 2, 2), {}, b.matrix(3, 5), b.matrix(2, 5)); });
  refuses("expert_combine_backward: dx_sc", [&](bench& b) {
    ops::expert_combine_backward(b.where, slots(b, 2, 2), b.matrix(2, 2), b.matrix(4, 5), b.matrix(2, 5), b.matrix(2, 5), b.matrix(2, 2));
  });
  const auto weights = [](bench& b, std::size_t e, std::size_t o, std::size_t i) { return b.vector(e * o * i).reshaped<3>({e, o, i}); };
  refuses("grouped_linear: x_ni: must have shape [6, 5]; given [6, 4]",
          [&](bench& b) { ops::grouped_linear(b.where, b.matrix(6, 4), weights(b, 2, 3, 5), slots(b, 2, 2), b.matrix(6, 3)); });
  refuses("grouped_linear: range_e2: must have shape [2, 2]; given [3, 2]",
          [&](bench& b) { ops::grouped_linear(b.where, b.matrix(6, 5), weights(b, 2, 3, 5), slots(b, 3, 2), b.matrix(6, 3)); });
  refuses("grouped_linear_backward_input: dx_ni: must have shape [6, 5]; given [6, 3]",
          [&](bench& b) { ops::grouped_linear_backward_input(b.where, b.matrix(6, 3), weights(b, 2, 3, 5), slots(b, 2, 2), b.matrix(6, 3)); });
  refuses("grouped_linear_backward_weight: dy_no: must have shape [6, 3]; given [6, 5]", [&](bench& b) {
    ops::grouped_linear_backward_weight(b.where, b.matrix(6, 5), matrix_view<const float, host_memory>(b.matrix(6, 5)), slots(b, 2, 2), weights(b, 2, 3, 5));
  });
  refuses("expert_balance: loss_n: must have shape [2]; given [3]", [&](bench& b) {
    ops::expert_balance<float>(b.where, slots(b, 1, 3), b.matrix(1, 3), 1, b.tokens(2), 7, 0.1, 1.0, b.vector(3), b.vector(3));
  });
}

TEST_CASE("an optimizer step over memory of different lengths is refused") {
  static constexpr kernel::step_scalars scalars;
  static constexpr std::array<double, 2> corrections{1.0, 1.0};
  refuses("adamw: scalars_1 must have 1 element; given 0",
          [](bench& b) { ops::adamw(b.where, kernel::adamw<host_memory, float, float, float, float>{}); });
  refuses("adamw: correction_2 must have 2 elements; given 0", [](bench& b) {
    ops::adamw(b.where, kernel::adamw<host_memory, float, float, float, float>{.scalars_1 = span_of(&scalars, 1)});
  });
  refuses("adamw: gradient, parameter, master, m and v must all have 4 elements; given 4, 3", [](bench& b) {
    ops::adamw(b.where, kernel::adamw<host_memory, float, float, float, float>{.n = 4,
                                                                               .scalars_1 = span_of(&scalars, 1),
                                                                               .correction_2 = span_of(corrections.data(), 2),
                                                                               .gradient_n = b.vector(4).span(),
                                                                               .parameter_n = b.vector(3).span(),
                                                                               .m_n = b.vector(4).span(),
                                                                               .v_n = b.vector(4).span()});
  });
  refuses("lion: gradient, parameter, master and m must all have 4 elements; given 4, 4, 0, 5", [](bench& b) {
    ops::lion(b.where, kernel::lion<host_memory, float, float, float, float>{.n = 4,
                                                                             .scalars_1 = span_of(&scalars, 1),
                                                                             .gradient_n = b.vector(4).span(),
                                                                             .parameter_n = b.vector(4).span(),
                                                                             .m_n = b.vector(5).span()});
  });
  const auto eight_bits = [](bench& b, std::size_t codes, std::size_t scales) {
    const auto code_n = b.memory.take<std::uint8_t>(codes);
    ops::adamw_8bit(b.where, kernel::adamw_8bit<host_memory, float, float, float>{.n = 300,
                                                                                  .scalars_1 = span_of(&scalars, 1),
                                                                                  .correction_2 = span_of(corrections.data(), 2),
                                                                                  .gradient_n = b.vector(300).span(),
                                                                                  .parameter_n = b.vector(300).span(),
                                                                                  .m_code_n = code_n,
                                                                                  .v_code_n = code_n,
                                                                                  .m_scale_k = b.vector(2).span(),
                                                                                  .v_scale_k = b.vector(scales).span()});
  };
  refuses("adamw_8bit: gradient, parameter, master, codes of m and codes of v must all have 300 elements; given 300, 300, 0, 200",
          [&](bench& b) { eight_bits(b, 200, 2); });
  refuses("adamw_8bit: m_scale_k and v_scale_k must have 2 elements; given 2 and 1", [&](bench& b) { eight_bits(b, 300, 1); });
}
