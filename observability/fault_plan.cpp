#include "observability/fault_plan.hpp"

#include <charconv>
#include <optional>

#include "observability/text.hpp"

namespace openshell::fault {
namespace {

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Takes what stands before `separator` off `rest`; all of it where there is none.
std::string_view next(std::string_view& rest, char separator) {
  const auto at = rest.find(separator);
  const auto part = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + 1);
  return part;
}

absl::Status not_understood(std::string_view part) {
  return absl::InvalidArgumentError(cat("OPENSHELL_FAULT: '", part, "' is not NAME=kill[@N], NAME=hang[@N] or NAME=fail:PERCENT[:SEED]"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> Plan::parse(std::string_view text) {
  std::unique_ptr<Plan> plan{new Plan};
  while (!text.empty()) {
    const auto part = next(text, ',');
    auto action = part;
    const auto name = next(action, '=');
    Rule rule;
    if (action.starts_with("fail:")) {
      action.remove_prefix(5);
      const auto percent = number(next(action, ':'));
      const auto seed = action.empty() ? std::optional<std::uint64_t>{0} : number(action);
      if (!percent || *percent > 100 || !seed) return not_understood(part);
      rule.effect = Effect::kFail;
      rule.percent = static_cast<std::uint32_t>(*percent);
      rule.random.seed(static_cast<std::uint32_t>(*seed));
    } else {
      const auto word = next(action, '@');
      const auto at = action.empty() ? std::optional<std::uint64_t>{1} : number(action);
      if ((word != "kill" && word != "hang") || !at || *at == 0) return not_understood(part);
      rule.effect = word == "kill" ? Effect::kKill : Effect::kHang;
      rule.at = *at;
    }
    if (name.empty() || !plan->rules_.emplace(name, rule).second) return not_understood(part);
  }
  return plan;
}

Effect Plan::pass(std::string_view name) {
  const std::lock_guard lock{mutex_};
  const auto found = rules_.find(name);
  if (found == rules_.end()) return Effect::kNone;
  Rule& rule = found->second;
  if (rule.effect != Effect::kFail) return ++rule.passed == rule.at ? rule.effect : Effect::kNone;
  return std::uniform_int_distribution<std::uint32_t>{0, 99}(rule.random) < rule.percent ? Effect::kFail : Effect::kNone;
}

}  // namespace openshell::fault
