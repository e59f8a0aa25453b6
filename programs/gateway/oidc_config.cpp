#include "programs/gateway/oidc_config.hpp"

#include <charconv>
#include <limits>

#include "api/oidc/https.hpp"
#include "observability/text.hpp"
#include "programs/gateway/ca_bundle.hpp"

namespace openshell::gateway {
namespace {

// A lifetime of keys that is longer is a typing error, and thrice as long must not overflow a clock.
constexpr std::uint64_t kMaxKeyLifetimeSecs = std::numeric_limits<std::uint32_t>::max();

absl::Status invalid(std::string_view key, std::string_view why) {
  return absl::InvalidArgumentError(cat("invalid gateway config field openshell.gateway.oidc.", key, ": ", why));
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

absl::Status fill_lifetime(const std::optional<std::string>& flag, const std::optional<std::uint64_t>& file, oidc::IssuerConfig& out) {
  std::uint64_t seconds = file.value_or(static_cast<std::uint64_t>(out.key_lifetime.count()));
  if (flag) {
    const auto [end, error] = std::from_chars(flag->data(), flag->data() + flag->size(), seconds);
    if (error != std::errc{} || end != flag->data() + flag->size()) return invalid("jwks_ttl_secs", cat("'", *flag, "' is not a number"));
  }
  if (seconds == 0 || seconds > kMaxKeyLifetimeSecs)
    return invalid("jwks_ttl_secs", cat("must be between 1 and ", kMaxKeyLifetimeSecs, ", got ", seconds));
  out.key_lifetime = std::chrono::seconds{static_cast<std::int64_t>(seconds)};
  return absl::OkStatus();
}

absl::Status fill_origins(const std::optional<std::string>& flag, const std::optional<std::vector<std::string>>& file,
                          oidc::IssuerConfig& out) {
  out.key_origins = flag ? split_list(*flag) : file.value_or(std::vector<std::string>{});
  for (const auto& origin : out.key_origins) {
    if (auto status = oidc::check_url(origin, out.loopback_http); !status.ok())
      return invalid("jwks_allowed_origins", to_std(status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<OidcConfig>> merge_oidc(const CommandLine& flags, const std::optional<OidcTable>& table) {
  const OidcTable file = table.value_or(OidcTable{});
  const auto text = [&](std::string_view flag, const std::optional<std::string>& in_file) {
    auto value = flags.find(flag);
    return value ? value : in_file;
  };
  OidcConfig out;
  out.issuer.issuer = flags.find("oidc-issuer").value_or("");
  if (out.issuer.issuer.empty()) out.issuer.issuer = file.issuer;  // an empty variable sets nothing
  if (out.issuer.issuer.empty()) return std::optional<OidcConfig>{};
  out.issuer.audience = text("oidc-audience", table ? std::optional{file.audience} : std::nullopt).value_or(out.issuer.audience);
  if (out.issuer.audience.empty()) return invalid("audience", "must not be empty: tokens for others would be taken");
  out.issuer.loopback_http = file.dangerously_allow_insecure_http.value_or(false);
  if (const auto flag = flags.find("oidc-dangerously-allow-insecure-http")) {
    if (*flag != "true" && *flag != "false")
      return invalid("dangerously_allow_insecure_http", cat("'", *flag, "' is neither true nor false"));
    out.issuer.loopback_http = *flag == "true";
  }
  out.issuer.roles_claim = text("oidc-roles-claim", file.roles_claim).value_or(out.issuer.roles_claim);
  out.issuer.scopes_claim = text("oidc-scopes-claim", file.scopes_claim).value_or("");
  out.admin_role = text("oidc-admin-role", file.admin_role).value_or("openshell-admin");
  out.user_role = text("oidc-user-role", file.user_role).value_or("openshell-user");
  if (out.admin_role.empty() != out.user_role.empty()) {
    return absl::InvalidArgumentError(cat("OIDC RBAC misconfiguration: admin_role=\"", out.admin_role, "\", user_role=\"", out.user_role,
                                          "\". Either set both roles (RBAC mode) or leave both empty (authentication-only mode)."));
  }
  if (auto status = fill_lifetime(flags.find("oidc-jwks-ttl"), file.jwks_ttl_secs, out.issuer); !status.ok()) return status;
  if (auto status = fill_origins(flags.find("oidc-jwks-allowed-origins"), file.jwks_allowed_origins, out.issuer); !status.ok())
    return status;
  if (const auto bundle = text("oidc-ca-bundle", file.ca_bundle)) {
    auto pem = read_ca_bundle(*bundle);
    if (!pem.ok()) return invalid("ca_bundle", to_std(pem.status().message()));
    out.issuer.ca_pem = *std::move(pem);
  }
  return std::optional{std::move(out)};
}

}  // namespace openshell::gateway
