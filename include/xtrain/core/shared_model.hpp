// Models that differ only in name share code.
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

/// Trainers' type: a base shared by families with equal layers.
template <class Model>
using shared_model = typename detail::shared_model_of<Model>::type;

namespace detail {

template <class Model>
struct computed_model_of {
  using type = Model;
};
template <class Model>
requires requires { typename Model::computed_model; }
struct computed_model_of<Model> {
  using type = typename Model::computed_model;
};

}  // namespace detail

/// Generators' and files' type: a base independent of training.
template <class Model>
using computed_model = typename detail::computed_model_of<shared_model<Model>>::type;

}  // namespace xtrain
