#include "api/oidc/claims.hpp"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <optional>

#include "observability/text.hpp"

namespace openshell::oidc {
namespace {

namespace json = boost::json;

constexpr double kLatestTime = 253402300800.0;  // the year 10000
constexpr std::array<std::string_view, 4> kNoScopes{"openid", "profile", "email", "offline_access"};

absl::Status refuse(std::string_view reason) { return absl::UnauthenticatedError(cat("invalid token: ", reason)); }

const json::value* find(const json::object& object, std::string_view key) {
  return object.if_contains(json::string_view{key.data(), key.size()});
}

/// Follows `a.b.c` through nested objects. Null: it leads nowhere.
const json::value* walk(const json::object& claims, std::string_view path) {
  const json::object* object = &claims;
  while (true) {
    const auto dot = path.find('.');
    const json::value* value = find(*object, path.substr(0, dot));
    if (value == nullptr || dot == std::string_view::npos) return value;
    if (!value->is_object()) return nullptr;
    object = &value->as_object();
    path.remove_prefix(dot + 1);
  }
}

/// Unix seconds, a fraction cut off. Absent: no number, or one that is no time.
std::optional<std::int64_t> time_of(const json::value& value) {
  if (value.is_int64()) return value.as_int64();
  if (!value.is_double() || !(std::abs(value.as_double()) < kLatestTime)) return std::nullopt;
  return static_cast<std::int64_t>(value.as_double());
}

std::vector<std::string> strings_of(const json::array& list) {
  std::vector<std::string> out;
  for (const auto& each : list) {
    if (each.is_string()) out.emplace_back(each.as_string());
  }
  return out;
}

std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  std::vector<std::string> out;
  for (auto begin = text.find_first_not_of(kSpace); begin != std::string_view::npos; begin = text.find_first_not_of(kSpace, begin)) {
    const auto end = std::min(text.find_first_of(kSpace, begin), text.size());
    out.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

bool names_audience(const json::value& value, std::string_view audience) {
  const auto equal = [&](const json::value& each) { return each.is_string() && std::string_view{each.as_string()} == audience; };
  if (!value.is_array()) return equal(value);
  return std::any_of(value.as_array().begin(), value.as_array().end(), equal);
}

absl::Status check_times(const json::object& claims, std::int64_t now) {
  const auto expires = time_of(*find(claims, "exp"));
  if (!expires) return refuse("exp is not a time");
  if (*expires < now - kClockLeewaySeconds) return refuse("ExpiredSignature");
  if (const auto* value = find(claims, "nbf")) {
    const auto begins = time_of(*value);
    if (!begins) return refuse("nbf is not a time");
    if (*begins > now + kClockLeewaySeconds) return refuse("ImmatureSignature");
  }
  return absl::OkStatus();
}

std::vector<std::string> scopes_of(const json::object& claims, const std::string& path) {
  const json::value* value = path.empty() ? nullptr : walk(claims, path);
  std::vector<std::string> scopes;
  if (value != nullptr && value->is_string()) scopes = words_of(value->as_string());
  if (value != nullptr && value->is_array()) scopes = strings_of(value->as_array());
  // Those that only ask the issuer for something say nothing about us.
  std::erase_if(scopes, [](const std::string& scope) { return std::find(kNoScopes.begin(), kNoScopes.end(), scope) != kNoScopes.end(); });
  return scopes;
}

}  // namespace

absl::StatusOr<api::Identity> identity_of(const json::object& claims, const ClaimRules& rules, std::int64_t now) {
  for (const std::string_view required : {"iss", "aud", "exp", "sub"}) {
    if (find(claims, required) == nullptr) return refuse(cat("Missing required claim: ", required));
  }
  if (auto status = check_times(claims, now); !status.ok()) return status;
  const json::value& issuer = *find(claims, "iss");
  if (!issuer.is_string() || std::string_view{issuer.as_string()} != rules.issuer) return refuse("InvalidIssuer");
  if (!names_audience(*find(claims, "aud"), rules.audience)) return refuse("InvalidAudience");
  const json::value& subject = *find(claims, "sub");
  if (!subject.is_string() || subject.as_string().empty()) return refuse("sub must be a non-empty string");
  api::Identity who;
  who.source = api::Identity::Source::kOidc;
  who.subject = std::string{subject.as_string()};
  if (const auto* name = find(claims, "preferred_username"); name != nullptr && name->is_string()) who.display_name = name->as_string();
  const json::value* roles = walk(claims, rules.roles_claim);
  if (roles != nullptr && roles->is_array()) who.roles = strings_of(roles->as_array());
  who.scopes = scopes_of(claims, rules.scopes_claim);
  return who;
}

}  // namespace openshell::oidc
