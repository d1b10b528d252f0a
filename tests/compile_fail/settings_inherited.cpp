// says: xtrain settings: members() must visit every member of the config
#include <xtrain/core/setting_list.hpp>
#include <xtrain/objective/next_token.hpp>

/// The members() of the base class visits what the base class has.
struct more_settings : xtrain::next_token::config {
  double third = 0.5;

#ifndef MISTAKE
  template <class Self, class Visit>
  static constexpr void members(Self& c, Visit&& visit) {
    xtrain::next_token::config::members(c, visit);
    visit({.name = "third", .help = "the third"}, c.third);
  }
#endif
};
struct no_more : xtrain::next_token::config {};

std::size_t count(more_settings& more, no_more& none) { return xtrain::list_settings(more).size() + xtrain::list_settings(none).size(); }
