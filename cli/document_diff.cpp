#include "cli/document_diff.hpp"

#include <algorithm>
#include <boost/json.hpp>

namespace openshell::cli {
namespace {

namespace json = boost::json;

std::string child(const std::string& path, std::string_view key) { return path.empty() ? std::string{key} : path + "." + std::string{key}; }
std::string element(const std::string& path, std::size_t index) { return path + "[" + std::to_string(index) + "]"; }

class Comparison {
 public:
  explicit Comparison(std::vector<Difference>& out) : out_{out} {}

  void values(const std::string& path, const json::value& before, const json::value& after) {
    if (before == after) return;
    if (before.is_object() && after.is_object()) return objects(path, before.get_object(), after.get_object());
    if (before.is_array() && after.is_array()) return lists(path, before.get_array(), after.get_array());
    out_.push_back({path, before, after});
  }

 private:
  void objects(const std::string& path, const json::object& before, const json::object& after) {
    for (const auto& entry : before) {
      const auto key = child(path, {entry.key().data(), entry.key().size()});
      if (const auto* other = after.if_contains(entry.key()); other != nullptr) {
        values(key, entry.value(), *other);
      } else {
        out_.push_back({key, entry.value(), std::nullopt});
      }
    }
    for (const auto& entry : after) {
      if (!before.contains(entry.key()))
        out_.push_back({child(path, {entry.key().data(), entry.key().size()}), std::nullopt, entry.value()});
    }
  }

  void lists(const std::string& path, const json::array& before, const json::array& after) {
    std::vector<std::size_t> old, fresh;  // what has no equal on the other side
    std::vector<bool> taken(after.size(), false);
    for (std::size_t i = 0; i < before.size(); ++i) {
      std::size_t at = 0;
      while (at < after.size() && (taken[at] || after[at] != before[i])) ++at;
      at < after.size() ? void(taken[at] = true) : old.push_back(i);
    }
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (!taken[i]) fresh.push_back(i);
    }
    const auto pairs = std::min(old.size(), fresh.size());
    for (std::size_t i = 0; i < pairs; ++i) values(element(path, old[i]), before[old[i]], after[fresh[i]]);
    for (std::size_t i = pairs; i < old.size(); ++i) out_.push_back({element(path, old[i]), before[old[i]], std::nullopt});
    for (std::size_t i = pairs; i < fresh.size(); ++i) out_.push_back({element(path, fresh[i]), std::nullopt, after[fresh[i]]});
  }

  std::vector<Difference>& out_;
};

}  // namespace

std::vector<Difference> differences(const json::value& before, const json::value& after) {
  std::vector<Difference> out;
  Comparison{out}.values("", before, after);
  std::stable_sort(out.begin(), out.end(), [](const Difference& a, const Difference& b) { return a.path < b.path; });
  return out;
}

}  // namespace openshell::cli
