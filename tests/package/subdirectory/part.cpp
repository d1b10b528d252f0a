// Compiled twice into one program: PART is 'plain' without optimization, or 'optimised'.
#include "part.hpp"

#include <typeinfo>

namespace PART {

template <class... Types>
std::vector<seen_type> types_of() {
  return {seen_type{typeid(Types).name(), sizeof(Types), alignof(Types)}...};
}

std::vector<seen_type> types() {
  return types_of<tiny::model, tiny::model::config_type, xtrain::trainer<tiny::model>, xtrain::dataset, xtrain::loader, xtrain::history,
                  xtrain::evaluation, xtrain::cpu::context, xtrain::tensor<float, 2, xtrain::cpu>,
                  xtrain::tensor_view<float, 2, xtrain::host_memory>, xtrain::array<float, 2>, xtrain::generator<tiny::model>,
                  xtrain::tokenizer, xtrain::bf16>();
}

std::vector<double> train(tiny::model& small, const xtrain::dataset& data) {
  xtrain::trainer trainer(small, {.max_steps = 5, .micro_batch_size = 2, .learning_rate = 1e-2, .lr_schedule = xtrain::lr_schedule_kind::constant});
  xtrain::history history;
  trainer.attach(history);
  trainer.fit(data);
  return {history.losses().begin(), history.losses().end()};
}

xtrain::array<double, 2> doubled(const xtrain::array<double, 2>& x) { return 2.0 * x; }

}  // namespace PART
