#include "policy/rego/workspace.hpp"

#include "policy/text.hpp"

#include <chrono>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

absl::StatusOr<Value> joined(const Value& a, const Value& b, const std::string& place) {
  if (a == b) return a;
  if (!a.is_object() || !b.is_object()) {
    return absl::InvalidArgumentError(cat("data: two documents have different values at ", place.empty() ? "the top" : place));
  }
  std::vector<Member> members(a.members().begin(), a.members().end());
  for (const auto& member : b.members()) {
    const Value* other = a.find(member.key);
    if (other == nullptr) {
      members.push_back(member);
      continue;
    }
    auto both = joined(*other, member.value, cat(place, "/", member.key.text()));
    if (!both.ok()) return both;
    members.push_back({member.key, *std::move(both)});
  }
  return Value::object(std::move(members));
}

}  // namespace

std::optional<Error> Workspace::add_module(std::string_view file, std::string_view source) {
  auto parsed = parse_module(file, source, syntax_);
  if (auto* error = std::get_if<Error>(&parsed)) return std::move(*error);
  modules_.push_back(std::get<Module>(std::move(parsed)));
  return std::nullopt;
}

absl::Status Workspace::add_data(const Value& document) {
  if (!document.is_object()) return absl::InvalidArgumentError("data: the document must be an object");
  auto both = joined(data_, document, "");
  if (!both.ok()) return both.status();
  data_ = *std::move(both);
  return absl::OkStatus();
}

Errors Workspace::compile() {
  auto compiled = rego::compile(modules_, pure_);
  if (auto* errors = std::get_if<Errors>(&compiled)) return std::move(*errors);
  program_ = std::get<std::unique_ptr<Program>>(std::move(compiled));
  return {};
}

std::variant<Query, Errors> Workspace::prepare(std::string_view text) const {
  auto body = parse_query(text, syntax_);
  if (const auto* error = std::get_if<Error>(&body)) return Errors{*error};
  return compile_query(*program_, std::get<Body>(body), pure_);
}

std::variant<std::vector<Answer>, Error> Workspace::ask(const Query& query, const Value& input, const QueryOptions& options) const {
  QueryContext context(options.limits);
  context.strict_errors = options.strict_errors;
  context.print = options.print;
  context.now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  Machine machine(*program_, data_, input, context);
  return machine.run(query);
}

std::variant<std::vector<Answer>, Errors> Workspace::query(std::string_view text, const Value& input, const QueryOptions& options) const {
  const auto prepared = prepare(text);
  if (const auto* errors = std::get_if<Errors>(&prepared)) return *errors;
  auto answers = ask(std::get<Query>(prepared), input, options);
  if (const auto* error = std::get_if<Error>(&answers)) return Errors{*error};
  return std::get<std::vector<Answer>>(std::move(answers));
}

}  // namespace openshell::policy::rego
