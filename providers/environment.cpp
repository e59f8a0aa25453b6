#include "providers/environment.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "observability/text.hpp"

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
  std::uint64_t first_bytes() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    EVP_DigestFinal_ex(ctx_, digest.data(), nullptr);
    std::uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | digest[static_cast<std::size_t>(i)];
    return value;
  }

 private:
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

absl::Status add_credentials(storage::Transaction& tx, const CredentialStore& credentials, const Provider& provider,
                             const std::vector<BindingEndpoint>* bound, std::int64_t now, Environment& out) {
  for (const auto& [key, credential] : provider.credentials) {
    if (!is_credential_key(key)) continue;
    if (credential.expires_at && *credential.expires_at <= now) {
      raise(out.readiness, Readiness::kCredentialExpired);
      continue;
    }
    auto value = credentials.resolve(tx, {provider.id, provider.name, key}, credential.handle);
    if (!value.ok())
      return absl::Status{value.status().code(),
                          cat("credential '", key, "' of provider '", provider.name, "': ", value.status().message())};
    out.values.emplace(key, *std::move(value));
    if (credential.expires_at) out.expires_at[key] = *credential.expires_at;
    if (bound != nullptr) out.bindings[key] = {sorted_unique(*bound), cat(provider.id, ":", key), {}};
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
    print.add(provider.type == kGenericType ? "no profile" : "profile missing");
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

absl::StatusOr<Environment> environment(storage::Transaction& tx, const CredentialStore& credentials, const std::vector<Provider>& attached,
                                        const PolicyBindings& bindings, std::int64_t now, bool static_bindings_supported) {
  Environment out;
  out.revision = environment_revision(attached, bindings);
  if (!static_bindings_supported) return out;
  for (const auto& provider : attached) {
    const auto bound = bindings.find(provider.name);
    if (provider.type != kGenericType) {
      // Its profile is not known here: nothing says where its credentials may go, so they stay.
      if (!provider.credentials.empty()) raise(out.readiness, Readiness::kCredentialsWithheld);
      continue;
    }
    auto status = add_credentials(tx, credentials, provider, bound == bindings.end() ? nullptr : &bound->second, now, out);
    if (!status.ok()) return status;
  }
  return out;
}

}  // namespace openshell::providers
