// Built-in chat templates; {% generation %} marks answers. Component 'io'.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/chat/chat_template.hpp>

namespace xtrain {  // namespace detail

/// Names of built-in templates.
[[nodiscard]] std::vector<std::string> chat_template_names();

/// Texts begin with "<s>" and end with "</s>" if the format has them; see set_token.
///   throws  config_error for an unknown name, with the closest match
[[nodiscard]] chat_template named_chat_template(std::string_view name);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/chat/chat_templates_impl.hpp>
#endif
