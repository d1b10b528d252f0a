// Model types that differ only in name share compiled code.
#pragma once

namespace xtrain {

namespace detail {

template <class Model>
struct shared_model_of {
  using type = Model;
};
template <class Model>
requires requires { typename Model::shared_model; }
struct shared_model_of<Model> {
  using type = typename Model::shared_model;
};

}  // namespace detail

/// The type that trainers, generators and files are compiled for: a base of the model, where families made of the same layers share one.
template <class Model>
using shared_model = typename detail::shared_model_of<Model>::type;

}  // namespace xtrain
