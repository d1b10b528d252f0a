// Chat templates by name, for models that ship none. Answers are marked by {% generation %}. Component 'io'.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/chat/chat_template.hpp>

namespace xtrain {  // namespace detail

/// The names of the templates that come with the library.
[[nodiscard]] std::vector<std::string> chat_template_names();

/// A template by name. Texts begin with "<s>" and end with "</s>" if the format has such tokens; set_token changes them.
///   throws  config_error if there is no such name, with the closest match
[[nodiscard]] chat_template named_chat_template(std::string_view name);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/chat/chat_templates_impl.hpp>
#endif
