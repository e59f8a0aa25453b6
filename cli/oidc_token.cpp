#include "cli/oidc_token.hpp"

#include <absl/strings/str_cat.h>

#include <boost/json.hpp>
#include <chrono>

#include "cli/login.hpp"
#include "cli/terminal.hpp"

namespace openshell::cli {
namespace {

namespace json = boost::json;

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string text_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string{value->get_string()} : "";
}

bool fresh(const TokenBundle& bundle) { return !bundle.expires_at || unix_now() + kRenewBeforeSeconds < *bundle.expires_at; }

std::string run_login(const std::string& gateway) { return absl::StrCat("run `openshell gateway login ", gateway, "`"); }

}  // namespace

Secret to_json(const TokenBundle& bundle) {
  const auto text = [](const Secret& secret) { return json::string{secret.reveal().data(), secret.reveal().size()}; };
  json::object document{{"access_token", text(bundle.access_token)}, {"issuer", bundle.issuer}, {"client_id", bundle.client_id}};
  if (!bundle.refresh_token.empty()) document["refresh_token"] = text(bundle.refresh_token);
  if (bundle.expires_at) document["expires_at"] = *bundle.expires_at;
  return Secret{json::serialize(document)};
}

absl::StatusOr<TokenBundle> parse_bundle(std::string_view text) {
  boost::system::error_code error;
  const auto document = json::parse(text, error);
  if (error || !document.is_object()) return absl::InvalidArgumentError("the stored token is not a JSON object");
  const auto& object = document.get_object();
  TokenBundle bundle{Secret{text_of(object, "access_token")}, Secret{text_of(object, "refresh_token")}, std::nullopt,
                     text_of(object, "issuer"), text_of(object, "client_id")};
  if (bundle.access_token.empty()) return absl::InvalidArgumentError("the stored token has no access_token");
  if (const auto* expires = object.if_contains("expires_at"); expires != nullptr && expires->is_number()) {
    json::error_code no_number;
    const auto seconds = expires->to_number<double>(no_number);  // the Python package writes a fraction
    if (!no_number && seconds >= 0 && seconds < 253402300800.0) bundle.expires_at = static_cast<std::int64_t>(seconds);
  }
  return bundle;
}

absl::StatusOr<TokenBundle> read_bundle(const Registry& registry, const std::string& gateway) {
  auto text = registry.read_token(gateway);
  if (!text.ok()) return text.status();
  auto bundle = parse_bundle(text->reveal());
  if (!bundle.ok()) return absl::NotFoundError(bundle.status().message());
  return bundle;
}

absl::Status store_bundle(const Registry& registry, const std::string& gateway, const TokenBundle& bundle) {
  return registry.write_token(gateway, to_json(bundle));
}

absl::StatusOr<Secret> bearer_for(const Registry& registry, const Registration& gateway, bool insecure) {
  auto bundle = read_bundle(registry, gateway.name);
  if (!bundle.ok()) return absl::FailedPreconditionError(absl::StrCat("OIDC credentials are missing; ", run_login(gateway.name)));
  if (fresh(*bundle)) return bundle->access_token;
  auto renewed = renew(gateway, *bundle, insecure);
  if (renewed.ok()) {
    if (auto stored = store_bundle(registry, gateway.name, *renewed); !stored.ok()) return stored;
    return renewed->access_token;
  }
  // Another program may have renewed it meanwhile, and so used up the refresh token that we read.
  if (auto again = read_bundle(registry, gateway.name); again.ok() && fresh(*again)) return again->access_token;
  if (unix_now() >= bundle->expires_at.value_or(0)) {
    return absl::FailedPreconditionError(absl::StrCat("OIDC token refresh failed: ", renewed.status().message(),
                                                      "\ncached OIDC token has expired; ", run_login(gateway.name)));
  }
  note(absl::StrCat("Warning: OIDC token refresh failed; continuing with the cached token: ", renewed.status().message()));
  return bundle->access_token;
}

}  // namespace openshell::cli
