// A fixed source without this library, whose compile time the others are compared with: containers, algorithms, regular expressions, JSON, and an array
// expression. Change it only together with all limits in run.sh.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xio.hpp>

namespace {

using value = std::variant<int, double, std::string, std::vector<int>>;

std::map<std::string, std::vector<value>> group(const std::vector<std::string>& words) {
  std::map<std::string, std::vector<value>> groups;
  const std::regex number("[+-]?[0-9]+(\\.[0-9]+)?");
  for (const std::string& word : words) {
    if (std::regex_match(word, number)) groups["numbers"].emplace_back(std::stod(word));
    else groups[word.substr(0, 1)].emplace_back(word);
  }
  for (auto& [name, values] : groups)
    std::stable_sort(values.begin(), values.end(), [](const value& a, const value& b) { return a < b; });
  return groups;
}

nlohmann::json as_json(const std::map<std::string, std::vector<value>>& groups) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, values] : groups)
    for (const value& one : values) std::visit([&, &to = name](const auto& v) { all[to].push_back(v); }, one);
  return all;
}

double norm(const xt::xarray<double>& x) {
  const xt::xarray<double> y = xt::sum(x * x, {1}) + 1.0;
  return std::sqrt(xt::sum(y)());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  const nlohmann::json said = nlohmann::json::parse(as_json(group(words)).dump(2));
  std::unordered_map<std::string, std::function<double(double)>> functions{{"square", [](double x) { return x * x; }},
                                                                           {"half", [](double x) { return x / 2; }}};
  std::set<double> results;
  for (const auto& [name, f] : functions) results.insert(f(static_cast<double>(said.size()) + static_cast<double>(name.size())));
  const xt::xarray<double> x = xt::ones<double>({4, 5}) * std::accumulate(results.begin(), results.end(), 0.0);
  std::ostringstream text;
  text << x << std::regex_replace(said.dump(), std::regex("a|b"), "c");
  return text.str().size() > 1000 || norm(x) > 1e3 ? 1 : 0;
}
