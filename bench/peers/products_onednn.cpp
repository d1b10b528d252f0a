// The matrix products of training through oneDNN: 'plain', and 'packed', where the weights are reordered to oneDNN's own format
// beforehand, outside the timed part.
//
//   products_onednn [all|forward|input|weight|lora] [both|fp32|bf16] [THREADS...]
#include <omp.h>

#include <cstdio>
#include <exception>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "../processors.hpp"
#include "products.hpp"

namespace {

using dnnl::memory;
using products::product;
using tag = memory::format_tag;

template <class T>
constexpr memory::data_type type_of = std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;

template <class T>
void time_product(std::size_t threads, const product& p, double peak, bool packed) {
  omp_set_num_threads(static_cast<int>(threads));  // read when the primitive is created
  std::size_t team = 0;
#pragma omp parallel
#pragma omp single
  team = static_cast<std::size_t>(omp_get_num_threads());
  products::require_threads(threads, team);
  const products::operands<T> x(p);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto size = [](std::size_t n) { return static_cast<memory::dim>(n); };
  const auto matrix = [&](std::size_t rows, std::size_t columns, tag order) {
    return memory::desc({size(rows), size(columns)}, type_of<T>, order);
  };
  const memory::desc a_order = matrix(p.m, p.k, p.transpose_a ? tag::ba : tag::ab), c_order = matrix(p.m, p.n, tag::ab),
                     b_order = matrix(p.k, p.n, p.transpose_b ? tag::ba : tag::ab);
  dnnl::primitive_attr how;
  how.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    how.set_post_ops(after);
  }
  const memory::desc b_wanted = packed ? matrix(p.k, p.n, tag::any) : b_order;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc described(engine, a_order, b_wanted, c_order, how);
#else
  const dnnl::matmul::primitive_desc described(dnnl::matmul::desc(a_order, b_wanted, c_order), how, engine);
#endif
  const dnnl::matmul multiply(described);

  memory b(b_order, engine, x.b.data());
  const products::bytes own_order(described.weights_desc().get_size()), scratch(described.scratchpad_desc().get_size());
  memory b_packed(described.weights_desc(), engine, own_order.data());
  if (packed) dnnl::reorder(b, b_packed).execute(stream, b, b_packed);
  const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory(a_order, engine, x.a.data())},
                                                  {DNNL_ARG_WEIGHTS, packed ? b_packed : b},
                                                  {DNNL_ARG_DST, memory(c_order, engine, x.c.data())},
                                                  {DNNL_ARG_SCRATCHPAD, memory(described.scratchpad_desc(), engine, scratch.data())}};
  const auto run = [&] {
    multiply.execute(stream, arguments);
    stream.wait();
  };
  run();
  products::require_right(p, x);
  products::print<T>(packed ? "onednn packed" : "onednn plain", threads, p, products::median_time(run), peak);
}

template <class T>
void time_both(std::size_t threads, const product& p, double peak) {
  time_product<T>(threads, p, peak, false);
  if (p.b_is_a_weight) time_product<T>(threads, p, peak, true);
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  const products::choice chosen = products::read_choice(argc, argv);
  const dnnl_version_t* version = dnnl_version();
  std::fprintf(stderr, "oneDNN %d.%d.%d\n", version->major, version->minor, version->patch);
  if (chosen.fp32) products::time_all<float>(chosen, time_both<float>);
  if (chosen.bf16) products::time_all<xtrain::bf16>(chosen, time_both<xtrain::bf16>);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "products_onednn: %s\n", problem.what());
  return 1;
}
