// says: xtrain settings: members() must visit every member of the config
// says: xtrain settings: a config must describe its members, so that checkpoints have them
#include <xtrain/core/setting_list.hpp>

struct two_settings {
  double first = 1.0;
  bool second = false;

  template <class Self, class Visit>
  static constexpr void members(Self& c, Visit&& visit) {
    visit({.name = "first", .help = "the first"}, c.first);
#ifndef MISTAKE
    visit({.name = "second", .help = "the second"}, c.second);
#endif
  }
};
struct one_setting {
#ifdef MISTAKE
  double first = 1.0;
#endif
};

std::size_t count(two_settings& two, one_setting& one) { return xtrain::list_settings(two).size() + xtrain::list_settings(one).size(); }
