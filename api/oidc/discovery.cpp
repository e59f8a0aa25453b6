#include "api/oidc/discovery.hpp"

#include <boost/json/parse.hpp>

#include "observability/text.hpp"

namespace openshell::oidc {
namespace {

namespace json = boost::json;

std::string without_slash(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

std::string text_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(json::string_view{key.data(), key.size()});
  return value != nullptr && value->is_string() ? std::string{value->as_string()} : std::string{};
}

}  // namespace

absl::StatusOr<Discovery> read_discovery(const std::string& issuer, std::string_view document) {
  json::error_code error;
  const auto value = json::parse(json::string_view{document.data(), document.size()}, error);
  if (error || !value.is_object()) return absl::FailedPreconditionError(cat("the discovery document of ", issuer, " is not a JSON object"));
  const auto& object = value.as_object();
  Discovery found{text_of(object, "issuer"), text_of(object, "jwks_uri"), text_of(object, "token_endpoint"),
                  text_of(object, "device_authorization_endpoint")};
  if (found.issuer.empty()) return absl::FailedPreconditionError(cat("the discovery document of ", issuer, " has no 'issuer'"));
  if (without_slash(found.issuer) != without_slash(issuer))
    return absl::FailedPreconditionError(cat("OIDC discovery issuer mismatch: expected '", issuer, "', got '", found.issuer, "'"));
  return found;
}

absl::StatusOr<Discovery> discover(const std::string& issuer, const HttpsOptions& options) {
  const std::string url = without_slash(issuer) + "/.well-known/openid-configuration";
  auto answer = https_get(url, options);
  if (!answer.ok()) return answer.status();
  if (answer->status >= 300 && answer->status < 400)
    return absl::FailedPreconditionError(
        cat(url, " redirects (HTTP ", answer->status, "); redirects are not followed, name the issuer itself"));
  if (answer->status != 200) return absl::FailedPreconditionError(cat(url, " answered with HTTP ", answer->status));
  return read_discovery(issuer, answer->body);
}

}  // namespace openshell::oidc
