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

/// The type that trainers are compiled for: a base of the model, where families made of the same layers share one.
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

/// The type that generators and files are compiled for: a base that does not know what trains it.
template <class Model>
using computed_model = typename detail::computed_model_of<shared_model<Model>>::type;

}  // namespace xtrain
