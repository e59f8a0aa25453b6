#include "api/oidc/token.hpp"

#include <absl/strings/escaping.h>

#include <boost/json/parse.hpp>
#include <optional>

#include "observability/text.hpp"

namespace openshell::oidc {
namespace {

namespace json = boost::json;

absl::Status no_token() { return absl::UnauthenticatedError("invalid token"); }

std::optional<json::object> parse_part(std::string_view part) {
  auto text = decode_base64url(part);
  if (!text.ok()) return std::nullopt;
  json::error_code error;
  json::parse_options strict;
  strict.max_depth = kMaxClaimDepth;
  auto value = json::parse(json::string_view{text->data(), text->size()}, error, {}, strict);
  if (error || !value.is_object()) return std::nullopt;
  return std::move(value.as_object());
}

std::string text_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(json::string_view{key.data(), key.size()});
  return value != nullptr && value->is_string() ? std::string{value->as_string()} : std::string{};
}

struct Parts {
  std::string_view header, claims, signature;
};

std::optional<Parts> split(std::string_view compact) {
  if (compact.size() > kMaxBearerBytes) return std::nullopt;
  const auto first = compact.find('.');
  const auto second = first == std::string_view::npos ? first : compact.find('.', first + 1);
  if (second == std::string_view::npos || compact.find('.', second + 1) != std::string_view::npos) return std::nullopt;
  return Parts{compact.substr(0, first), compact.substr(first + 1, second - first - 1), compact.substr(second + 1)};
}

}  // namespace

absl::StatusOr<std::string> decode_base64url(std::string_view text) {
  std::string out;
  if (text.find('=') != std::string_view::npos || !absl::WebSafeBase64Unescape(to_absl(text), &out) ||
      absl::WebSafeBase64Escape(out) != to_absl(text)) {
    return absl::InvalidArgumentError("not base64url");
  }
  return out;
}

absl::StatusOr<SignedToken> take_apart(std::string_view compact) {
  const auto parts = split(compact);
  if (!parts) return no_token();
  const auto header = parse_part(parts->header);
  auto claims = parse_part(parts->claims);
  auto signature = decode_base64url(parts->signature);
  if (!header || !claims || !signature.ok()) return no_token();
  // An extension that must be understood (RFC 7515 4.1.11) is none that we know.
  if (header->contains("crit")) return absl::UnauthenticatedError("invalid token: critical header extensions are not supported");
  SignedToken token;
  token.algorithm = text_of(*header, "alg");
  token.key_id = text_of(*header, "kid");
  if (token.key_id.empty()) return absl::UnauthenticatedError("invalid token: missing kid");
  token.claims = *std::move(claims);
  token.signed_text = compact.substr(0, parts->header.size() + 1 + parts->claims.size());
  token.signature = *std::move(signature);
  return token;
}

json::object unverified_claims(std::string_view compact) {
  const auto parts = split(compact);
  if (!parts) return {};
  return parse_part(parts->claims).value_or(json::object{});
}

}  // namespace openshell::oidc
