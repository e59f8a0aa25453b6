#include "providers/environment.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "observability/text.hpp"
#include "providers/profile.hpp"

namespace openshell::providers {
namespace {

/// Digest over parts that can not be confused with each other: each goes in with its length.
class Fingerprint {
 public:
  explicit Fingerprint(std::string_view domain) : ctx_{EVP_MD_CTX_new()} {
    EVP_DigestInit_ex(ctx_, EVP_sha256(), nullptr);
    add(domain);
  }
  ~Fingerprint() { EVP_MD_CTX_free(ctx_); }
  Fingerprint(const Fingerprint&) = delete;
  Fingerprint& operator=(const Fingerprint&) = delete;

  void add(std::string_view part) {
    number(part.size());
    EVP_DigestUpdate(ctx_, part.data(), part.size());
  }
  void number(std::uint64_t value) {
    std::array<unsigned char, 8> bytes{};
    for (auto& byte : bytes) {
      byte = static_cast<unsigned char>(value);
      value >>= 8;
    }
    EVP_DigestUpdate(ctx_, bytes.data(), bytes.size());
  }
  std::string hex() {
    const auto all = digest();
    return absl::BytesToHexString({reinterpret_cast<const char*>(all.data()), all.size()});
  }
  std::uint64_t first_bytes() {
    const auto digest = this->digest();
    std::uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | digest[static_cast<std::size_t>(i)];
    return value;
  }

 private:
  std::array<unsigned char, 32> digest() {
    std::array<unsigned char, 32> out{};
    EVP_DigestFinal_ex(ctx_, out.data(), nullptr);
    return out;
  }
  EVP_MD_CTX* ctx_;
};

std::vector<BindingEndpoint> sorted_unique(std::vector<BindingEndpoint> endpoints) {
  std::sort(endpoints.begin(), endpoints.end());
  endpoints.erase(std::unique(endpoints.begin(), endpoints.end()), endpoints.end());
  return endpoints;
}

void raise(Readiness& readiness, Readiness to) {
  if (readiness != Readiness::kCredentialsWithheld) readiness = to;
}

/// Where the credentials of a provider may go. `withheld`: nowhere; `unbound`: the explicit rule of the egress decides.
struct Scope {
  bool withheld = false;
  bool unbound = false;
  std::vector<BindingEndpoint> endpoints;
};

absl::StatusOr<Scope> scope_of(const Provider& provider, const PolicyBindings& bindings) {
  const auto bound = bindings.find(provider.name);
  const bool named = bound != bindings.end() && !bound->second.empty();
  Scope out;
  if (provider.profile == nullptr && provider.type != kGenericType) {
    out.withheld = true;  // its profile is gone: nothing says where its credentials may go, so they stay
    return out;
  }
  out.endpoints = sorted_unique(profile_endpoints(provider));
  if (!out.endpoints.empty() && named)
    return absl::FailedPreconditionError(cat("provider '", provider.name,
                                             "' profile already defines credential endpoints; remove credential_binding from the sandbox "
                                             "policy endpoint"));
  if (named) out.endpoints = sorted_unique(bound->second);
  out.unbound = out.endpoints.empty() && provider.unbound();
  out.withheld = out.endpoints.empty() && !out.unbound;
  return out;
}

/// What the profile says of one key.
struct KeyRules {
  bool accepted = true;
  bool hidden = false;
  bool stable = false;
  std::optional<Placement> placement;
};

KeyRules rules_of(const Provider& provider, const std::string& key) {
  if (provider.profile == nullptr) return {};
  const auto& profile = provider.profile->content;
  KeyRules out;
  out.accepted = accepted_keys(profile).contains(key);
  out.hidden = hidden_keys(profile).contains(key);
  for (const auto& credential : profile.credentials()) {
    const auto& names = credential.env_vars();
    if (std::find(names.begin(), names.end(), key) == names.end()) continue;
    out.stable = credential.stable_placeholder();
    const auto style = absl::AsciiStrToLower(absl::StripAsciiWhitespace(credential.auth_style()));
    const bool usual = style.empty() || style == "basic" || style == "bearer";
    if (!usual || !credential.header_name().empty())
      out.placement = Placement{style, credential.header_name(), credential.query_param(), credential.path_template()};
  }
  return out;
}

absl::Status add_credentials(storage::Transaction& tx, const CredentialStore& credentials, const Provider& provider, const Scope& scope,
                             const EnvironmentOptions& options, Environment& out) {
  for (const auto& [key, credential] : provider.credentials) {
    const auto rules = rules_of(provider, key);
    if (!is_credential_key(key) || rules.hidden) continue;
    if (scope.withheld || !rules.accepted || (rules.stable && !options.stable_placeholders)) {
      raise(out.readiness, Readiness::kCredentialsWithheld);
      continue;
    }
    if (credential.expires_at && *credential.expires_at <= options.now) {
      raise(out.readiness, Readiness::kCredentialExpired);
      continue;
    }
    auto value = credentials.resolve(tx, {provider.id, provider.name, key}, credential.handle);
    if (!value.ok())
      return absl::Status{value.status().code(),
                          cat("credential '", key, "' of provider '", provider.name, "': ", value.status().message())};
    out.values.emplace(key, *std::move(value));
    if (credential.expires_at) out.expires_at[key] = *credential.expires_at;
    if (scope.unbound) continue;
    StaticBinding binding{scope.endpoints, cat(provider.id, ":", key), {}};
    if (rules.stable) {
      binding.workload_credential_handle = stable_handle(options.sandbox_id, provider.id, key, credential.boundary_epoch, scope.endpoints);
      binding.credential_identity = cat("stable:", binding.workload_credential_handle);
      out.stable_keys.push_back(key);
    }
    if (rules.placement) out.placements[key] = *rules.placement;
    out.bindings[key] = std::move(binding);
  }
  return absl::OkStatus();
}

}  // namespace

std::uint64_t environment_revision(const std::vector<Provider>& attached, const PolicyBindings& bindings) {
  Fingerprint print{"openshell-provider-environment-v1"};
  print.number(attached.size());
  for (const auto& provider : attached) {
    print.add(provider.name);
    print.add(provider.id);
    print.number(provider.resource_version);
    print.add(provider.type);
    print.add(provider.profile_workspace);
    if (provider.profile != nullptr) {
      print.add("profile");
      print.add(provider.profile->row_id);
      print.number(provider.profile->content.resource_version());
    } else {
      print.add(provider.type == kGenericType ? "no profile" : "profile missing");
    }
    print.number(provider.credentials.size());
    for (const auto& [key, credential] : provider.credentials) {
      print.add(key);
      print.add(credential.handle.handle);
      print.add(credential.expires_at ? std::to_string(*credential.expires_at) : "");
    }
  }
  print.number(bindings.size());
  for (const auto& [provider, endpoints] : bindings) {
    print.add(provider);
    const auto sorted = sorted_unique(endpoints);
    print.number(sorted.size());
    for (const auto& endpoint : sorted) {
      print.add(endpoint.host);
      print.number(endpoint.port);
      print.add(endpoint.path);
    }
  }
  const std::uint64_t revision = print.first_bytes();
  return revision == 0 ? 1 : revision;  // 0 means "no environment" in a placeholder
}

std::string stable_handle(std::string_view sandbox_id, std::string_view provider_id, std::string_view key, std::string_view epoch,
                          std::vector<BindingEndpoint> endpoints) {
  for (auto& endpoint : endpoints) {
    std::string host{absl::StripAsciiWhitespace(endpoint.host)};
    while (!host.empty() && host.back() == '.') host.pop_back();
    endpoint.host = absl::AsciiStrToLower(host);
    endpoint.path = std::string{absl::StripAsciiWhitespace(endpoint.path)};
    if (endpoint.path.empty() || endpoint.path == "**") endpoint.path = "/**";
  }
  Fingerprint print{"openshell-workload-credential-handle-v1"};
  for (const auto part : {sandbox_id, provider_id, key, epoch}) print.add(part);
  for (const auto& endpoint : sorted_unique(std::move(endpoints))) {
    std::string port(4, '\0');
    for (unsigned i = 0; i < 4; ++i) port[i] = static_cast<char>(endpoint.port >> (8 * i) & 0xff);
    print.add(endpoint.host);
    print.add(port);
    print.add(endpoint.path);
  }
  return print.hex();
}

absl::StatusOr<Environment> environment(storage::Transaction& tx, const CredentialStore& credentials, const std::vector<Provider>& attached,
                                        const PolicyBindings& bindings, const EnvironmentOptions& options) {
  Environment out;
  out.revision = environment_revision(attached, bindings);
  if (!options.static_bindings) return out;
  for (const auto& provider : attached) {
    auto scope = scope_of(provider, bindings);
    if (!scope.ok()) return scope.status();
    auto status = add_credentials(tx, credentials, provider, *scope, options, out);
    if (!status.ok()) return status;
  }
  std::sort(out.stable_keys.begin(), out.stable_keys.end());
  return out;
}

}  // namespace openshell::providers
