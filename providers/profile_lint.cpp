#include "providers/profile_lint.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_split.h>
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <map>

#include "observability/text.hpp"
#include "policy/glob.hpp"
#include "policy/validate.hpp"
#include "providers/placeholder.hpp"

namespace openshell::providers {
namespace {

using namespace openshell::v1;
using openshell::sandbox::v1::NetworkEndpoint;

std::string trimmed(const std::string& text) { return std::string{absl::StripAsciiWhitespace(text)}; }
bool blank(const std::string& text) { return absl::StripAsciiWhitespace(text).empty(); }

/// What a refresh strategy makes beside its credential, and the environment names that the programs who read it insist on.
struct Output {
  std::string_view id;
  std::string_view env_var;
};
constexpr std::array kStsOutputs{Output{"secret_access_key", "AWS_SECRET_ACCESS_KEY"}, Output{"session_token", "AWS_SESSION_TOKEN"}};
constexpr std::string_view kStsPrimary = "AWS_ACCESS_KEY_ID";

std::string_view strategy_name(ProviderCredentialRefreshStrategy strategy) {
  switch (strategy) {
    case PROVIDER_CREDENTIAL_REFRESH_STRATEGY_STATIC:
      return "static";
    case PROVIDER_CREDENTIAL_REFRESH_STRATEGY_EXTERNAL:
      return "external";
    case PROVIDER_CREDENTIAL_REFRESH_STRATEGY_OAUTH2_REFRESH_TOKEN:
      return "oauth2_refresh_token";
    case PROVIDER_CREDENTIAL_REFRESH_STRATEGY_OAUTH2_CLIENT_CREDENTIALS:
      return "oauth2_client_credentials";
    case PROVIDER_CREDENTIAL_REFRESH_STRATEGY_GOOGLE_SERVICE_ACCOUNT_JWT:
      return "google_service_account_jwt";
    case PROVIDER_CREDENTIAL_REFRESH_STRATEGY_AWS_STS_ASSUME_ROLE:
      return "aws_sts_assume_role";
    default:
      return "unspecified";
  }
}

bool valid_duration(const google::protobuf::Duration& duration) {
  return duration.seconds() >= 0 && duration.seconds() <= 315'576'000'000 && duration.nanos() >= 0 && duration.nanos() <= 999'999'999;
}

bool is_loopback(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &six) != 1) return false;
  if (IN6_IS_ADDR_LOOPBACK(&six)) return true;
  return IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127;
}

/// `name.namespace.svc` or `name.namespace.svc.cluster.local`.
bool is_cluster_service(std::string host) {
  if (absl::EndsWith(host, ".")) host.pop_back();
  const std::vector<std::string> labels = absl::StrSplit(host, '.');
  if (std::any_of(labels.begin(), labels.end(), [](const auto& label) { return label.empty(); })) return false;
  if (labels.size() == 3) return labels[2] == "svc";
  return labels.size() == 5 && labels[2] == "svc" && labels[3] == "cluster" && labels[4] == "local";
}

/// Empty: a token endpoint may stand there.
std::string endpoint_fault(const std::string& url) {
  const bool https = absl::StartsWithIgnoreCase(url, "https://");
  if (!https && !absl::StartsWithIgnoreCase(url, "http://")) return "token_endpoint must be an absolute URL";
  auto authority = url.substr(url.find("://") + 3);
  authority = authority.substr(0, authority.find_first_of("/?#"));
  if (const auto at = authority.rfind('@'); at != std::string::npos) authority.erase(0, at + 1);
  const bool literal = absl::StartsWith(authority, "[");
  const auto host =
      absl::AsciiStrToLower(literal ? authority.substr(1, authority.find(']') == std::string::npos ? 0 : authority.find(']') - 1)
                                    : authority.substr(0, authority.find(':')));
  if (host.empty()) return "token_endpoint must be an absolute URL";
  if (https || host == "localhost" || is_loopback(host) || is_cluster_service(host)) return {};
  return "token_endpoint must use https, except http for loopback or in-cluster service hosts";
}

bool is_field_name(std::string_view name) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || kMarks.find(c) != std::string_view::npos;
  });
}

/// One profile. Faults are added in the order of the functions.
class Linter {
 public:
  Linter(const ProfileSource& at, std::vector<ProfileDiagnostic>& out) : at_{at}, profile_{*at.profile}, out_{out} {}

  void run(std::set<std::string>& ids) {
    check_id(ids);
    check_credential_names();
    check_discovery();
    check_broker_only();
    std::set<std::string> names;
    for (const auto& credential : profile_.credentials()) {
      check_env_vars(credential, names);
      check_style(credential);
      if (credential.has_refresh()) check_refresh(credential);
      if (credential.has_token_grant()) check_grant(credential);
      check_stable(credential);
    }
    check_endpoints();
    check_binaries();
    check_files(names);
  }

 private:
  void error(std::string field, std::string message) {
    auto& fault = out_.emplace_back();
    fault.set_source(at_.source);
    fault.set_profile_id(trimmed(profile_.id()));
    fault.set_field(std::move(field));
    fault.set_message(std::move(message));
    fault.set_severity("error");
  }
  const ProviderProfileCredential* credential_named(const std::string& name) const {
    for (const auto& credential : profile_.credentials()) {
      if (credential.name() == name) return &credential;
    }
    return nullptr;
  }

  void check_id(std::set<std::string>& ids) {
    if (blank(profile_.id())) return error("id", "provider profile id is required");
    if (!is_profile_id(profile_.id())) error("id", "provider profile id must be lowercase kebab-case using only a-z, 0-9, and '-'");
    if (!ids.insert(profile_.id()).second) error("id", cat("duplicate provider profile id: ", profile_.id()));
  }
  void check_credential_names() {
    std::set<std::string> seen;
    for (const auto& credential : profile_.credentials()) {
      const auto name = trimmed(credential.name());
      if (name.empty()) {
        error("credentials.name", "credential name is required");
      } else if (!seen.insert(name).second) {
        error("credentials.name", cat("duplicate credential name: ", name));
      }
    }
  }
  void check_discovery() {
    std::set<std::string> seen;
    for (int i = 0; i < profile_.discovery().credentials_size(); ++i) {
      const auto& name = profile_.discovery().credentials(i);
      const auto field = cat("discovery.credentials[", i, "]");
      if (blank(name)) {
        error(field, "discovery credential name must not be empty");
      } else if (!seen.insert(name).second) {
        error(field, cat("duplicate discovery credential: ", name));
      } else if (credential_named(name) == nullptr) {
        error(field, cat("unknown discovery credential: ", name));
      }
    }
  }
  void check_broker_only() {
    for (const auto& name : broker_only_keys(profile_)) {
      const auto* subject = credential_named(name);
      if (subject == nullptr) continue;
      const bool injected = !subject->env_vars().empty() || !subject->auth_style().empty() || !subject->header_name().empty() ||
                            !subject->query_param().empty() || !subject->path_template().empty() || subject->has_refresh() ||
                            subject->has_token_grant();
      if (injected) {
        error("credentials.token_grant.subject_token.credential",
              cat("subject token credential '", name, "' is broker-only and cannot declare workload injection metadata"));
      }
    }
  }
  void check_env_vars(const ProviderProfileCredential& credential, std::set<std::string>& names) {
    for (const auto& name : credential.env_vars()) {
      if (blank(name)) {
        error("credentials.env_vars", "credential env var must not be empty");
      } else if (is_reserved_name(name)) {
        error("credentials.env_vars", cat("credential env var '", name, "' uses reserved OpenShell placeholder revision namespace"));
      } else if (!is_credential_key(name)) {
        error("credentials.env_vars", cat("credential env var '", name, "' must match ^[A-Za-z_][A-Za-z0-9_]*$"));
      } else if (!names.insert(name).second) {
        error("credentials.env_vars", cat("duplicate credential env var '", name, "'"));
      }
    }
  }
  void check_style(const ProviderProfileCredential& credential) {
    const auto style = absl::AsciiStrToLower(trimmed(credential.auth_style()));
    if ((style == "bearer" || style == "header") && blank(credential.header_name())) {
      error("credentials.header_name", cat("header_name is required for ", style, " auth"));
    } else if (style == "path") {
      check_path_template(credential.path_template());
    } else if (style == "query" && blank(credential.query_param())) {
      error("credentials.query_param", "query_param is required for query auth");
    } else if (!style.empty() && style != "basic" && style != "bearer" && style != "header" && style != "query") {
      error("credentials.auth_style", cat("unsupported auth_style: ", credential.auth_style()));
    }
  }
  void check_path_template(const std::string& text) {
    constexpr std::string_view kMark = "{credential}";
    if (blank(text)) return error("credentials.path_template", "path_template is required for path auth");
    std::size_t count = 0;
    for (auto at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + kMark.size())) ++count;
    if (count != 1)
      error("credentials.path_template",
            cat("path_template should contain {credential} exactly once, ", text, " contains {credential} ", count, " times"));
  }

  void check_refresh(const ProviderProfileCredential& credential) {
    const auto& refresh = credential.refresh();
    if (refresh.strategy() == PROVIDER_CREDENTIAL_REFRESH_STRATEGY_UNSPECIFIED ||
        !ProviderCredentialRefreshStrategy_IsValid(refresh.strategy())) {
      error("credentials.refresh.strategy", "refresh strategy is required");
    }
    if (refresh.has_refresh_before() && !valid_duration(refresh.refresh_before()))
      error("credentials.refresh.refresh_before", "refresh_before must be a valid non-negative duration: out of range");
    if (refresh.has_max_lifetime()) {
      const auto& most = refresh.max_lifetime();
      if (!valid_duration(most)) {
        error("credentials.refresh.max_lifetime", "max_lifetime must be a valid non-negative duration: out of range");
      } else if (most.seconds() == 0 && most.nanos() == 0) {
        error("credentials.refresh.max_lifetime", "max_lifetime must be greater than zero when present");
      }
    }
    std::set<std::string> seen;
    for (const auto& material : refresh.material()) {
      const auto name = trimmed(material.name());
      if (name.empty()) {
        error("credentials.refresh.material.name", "refresh material name is required");
      } else if (!seen.insert(name).second) {
        error("credentials.refresh.material.name", cat("duplicate refresh material name: ", name));
      }
    }
    check_outputs(credential);
  }
  void check_outputs(const ProviderProfileCredential& credential) {
    const std::string field = "credentials.refresh.additional_outputs";
    const auto& refresh = credential.refresh();
    const bool sts = refresh.strategy() == PROVIDER_CREDENTIAL_REFRESH_STRATEGY_AWS_STS_ASSUME_ROLE;
    const auto name = strategy_name(refresh.strategy());
    if (!sts) {
      if (!refresh.additional_outputs().empty()) error(field, cat("strategy ", name, " does not support additional_outputs"));
      return;
    }
    std::set<std::string> seen;
    for (const auto& output : refresh.additional_outputs()) {
      const auto known = std::find_if(kStsOutputs.begin(), kStsOutputs.end(), [&](const Output& one) { return one.id == output.output(); });
      if (blank(output.output())) {
        error(field + ".output", "refresh additional output id is required");
      } else if (!seen.insert(output.output()).second) {
        error(field + ".output", cat("duplicate refresh additional output: ", output.output()));
      } else if (known == kStsOutputs.end()) {
        error(field + ".output", cat("strategy ", name, " does not produce output '", output.output(), "'"));
      } else {
        check_output_target(output, known->env_var);
      }
    }
    for (const auto& output : kStsOutputs) {
      if (!seen.contains(std::string{output.id})) error(field, cat("strategy ", name, " requires additional output '", output.id, "'"));
    }
    if (credential.env_vars_size() != 1 || credential.env_vars(0) != kStsPrimary)
      error("credentials.env_vars", cat("strategy ", name, " requires primary credential to map to env var ", kStsPrimary));
  }
  void check_output_target(const ProviderCredentialRefreshOutput& output, std::string_view env_var) {
    const std::string field = "credentials.refresh.additional_outputs.credential";
    const auto* target = credential_named(output.credential());
    if (target == nullptr)
      return error(field,
                   cat("refresh additional output '", output.output(), "' references unknown credential '", output.credential(), "'"));
    if (target->has_refresh())
      error(field, cat("credential '", target->name(), "' is a refresh output and must not declare its own refresh"));
    if (target->env_vars_size() != 1)
      return error(field, cat("refresh output credential '", target->name(), "' must declare exactly one env var"));
    if (target->env_vars(0) != env_var)
      error(field, cat("refresh output '", output.output(), "' must map to env var ", env_var, ", found ", target->env_vars(0)));
  }

  void check_grant(const ProviderProfileCredential& credential) {
    const auto& grant = credential.token_grant();
    if (grant.has_cache_ttl() && !valid_duration(grant.cache_ttl()))
      error("credentials.token_grant.cache_ttl", "cache_ttl must be a valid non-negative duration: out of range");
    check_subject(grant);
    if (const auto fault = endpoint_fault(grant.token_endpoint()); !fault.empty()) error("credentials.token_grant.token_endpoint", fault);
    check_overrides(credential);
    const auto style = absl::AsciiStrToLower(trimmed(credential.auth_style()));
    if (!style.empty() && style != "bearer" && style != "header")
      error("credentials.token_grant.auth_style", "token_grant credentials support auth_style bearer or header");
    const auto header = absl::AsciiStrToLower(trimmed(credential.header_name()));
    if (header.empty()) return;
    if (!is_field_name(header)) error("credentials.header_name", "token_grant header_name is not a valid HTTP header name");
    for (const char* framing : {"host", "content-length", "transfer-encoding", "connection"}) {
      if (header == framing)
        error("credentials.header_name", "token_grant header_name may not override HTTP framing or connection headers");
    }
  }
  void check_subject(const ProviderCredentialTokenGrant& grant) {
    const std::string field = "credentials.token_grant.subject_token";
    const bool exchange = grant.grant_type() == PROVIDER_CREDENTIAL_TOKEN_GRANT_TYPE_TOKEN_EXCHANGE;
    if (!exchange) {
      if (grant.has_subject_token()) error(field, "subject_token is only valid for token_exchange grants");
      return;
    }
    if (!grant.has_subject_token()) return error(field, "token_exchange grants require subject_token");
    if (grant.subject_token().source() != "provider_credential")
      error(field + ".source", "subject_token.source must be provider_credential");
    const auto& name = grant.subject_token().credential();
    if (blank(name)) {
      error(field + ".credential", "subject_token.credential is required");
    } else if (credential_named(name) == nullptr) {
      error(field + ".credential", cat("unknown subject token credential: ", name));
    }
  }
  void check_overrides(const ProviderProfileCredential& credential) {
    const auto& all = credential.token_grant().audience_overrides();
    for (int i = 0; i < all.size(); ++i) {
      if (blank(all[i].audience()))
        error("credentials.token_grant.audience_overrides", cat("audience_overrides[", i, "] requires an audience"));
      for (int j = i + 1; j < all.size(); ++j) {
        const bool same =
            absl::EqualsIgnoreCase(all[i].host(), all[j].host()) && all[i].port() == all[j].port() && all[i].path() == all[j].path();
        if (!same) continue;
        error("credentials.token_grant.audience_overrides",
              cat("credential '", credential.name(), "' has ambiguous token_grant audience_overrides at indexes ", i, " and ", j, " for ",
                  all[i].host(), ":", all[i].port(), " path selectors '", all[i].path(), "' and '", all[j].path(), "'"));
      }
    }
  }
  void check_stable(const ProviderProfileCredential& credential) {
    if (!credential.stable_placeholder()) return;
    const std::string field = "credentials.stable_placeholder";
    const bool output = std::any_of(profile_.credentials().begin(), profile_.credentials().end(), [&](const auto& other) {
      const auto& outputs = other.refresh().additional_outputs();
      return std::any_of(outputs.begin(), outputs.end(), [&](const auto& one) { return one.credential() == credential.name(); });
    });
    if (credential.has_refresh() || credential.has_token_grant() || output)
      error(field, "stable_placeholder is only valid for externally supplied static credentials");
    if (credential.env_vars().empty()) error(field, "stable_placeholder requires env_vars");
  }

  static std::vector<std::uint32_t> ports_of(const NetworkEndpoint& endpoint) {
    if (endpoint.ports().empty()) return {endpoint.port()};
    return {endpoint.ports().begin(), endpoint.ports().end()};
  }
  void check_endpoints() {
    bool shapes = true;
    for (int i = 0; i < profile_.endpoints_size(); ++i) {
      const auto& endpoint = profile_.endpoints(i);
      const auto ports = ports_of(endpoint);
      const bool usable = std::all_of(ports.begin(), ports.end(), [](auto port) { return port >= 1 && port <= 65535; });
      if (!blank(endpoint.host()) && usable) continue;
      shapes = false;
      error(cat("endpoints[", i, "]"), cat("invalid endpoint '", endpoint.host(), ":", ports.front(), "'"));
    }
    if (shapes) check_semantics();
    for (int i = 0; i < profile_.endpoints_size(); ++i) check_inspection(i);
  }
  /// What the policy's own checks say of the rule that the profile becomes.
  void check_semantics() {
    constexpr std::string_view kRule = "profile";
    const std::string prefix = cat("network_policies.", kRule, ".");
    openshell::sandbox::v1::SandboxPolicy policy;
    policy.set_version(1);
    auto& rule = (*policy.mutable_network_policies())[std::string{kRule}];
    rule.set_name(kRule.data(), kRule.size());
    *rule.mutable_endpoints() = profile_.endpoints();
    *rule.mutable_binaries() = profile_.binaries();
    const auto found = policy::validate(policy);
    for (const auto& fault : found.items()) {
      if (fault.severity != policy::Severity::error) continue;
      std::string field = fault.path.starts_with(prefix) ? fault.path.substr(prefix.size()) : fault.path;
      if (field.starts_with("binaries[")) continue;  // said by check_binaries
      error(std::move(field), fault.cure.empty() ? fault.message : cat(fault.message, "; ", fault.cure));
    }
  }
  void check_inspection(int i) {
    const auto& endpoint = profile_.endpoints(i);
    if (!is_credentialed(profile_) || endpoint.allow_uninspected_credentials()) return;
    const auto protocol = absl::AsciiStrToLower(trimmed(endpoint.protocol()));
    const bool raw = protocol.empty() || protocol == "tcp" || protocol == "sql";
    if (!raw && endpoint.tls() != openshell::sandbox::v1::NETWORK_TLS_MODE_SKIP) return;
    error(cat("endpoints[", i, "].allow_uninspected_credentials"),
          cat("credentialed endpoint '", endpoint.host(), ":", ports_of(endpoint).front(), "' uses ", raw ? "L4-only" : "tls: skip",
              "; configure L7 inspection or explicitly set allow_uninspected_credentials: true"));
  }
  void check_binaries() {
    for (int i = 0; i < profile_.binaries_size(); ++i) {
      const auto& path = profile_.binaries(i).path();
      const auto field = cat("binaries[", i, "]");
      if (blank(path)) {
        error(field, "binary path must not be empty");
      } else if (path.size() > policy::kMaxPathBytes) {
        error(field, cat("binary path exceeds maximum length (", path.size(), " > ", policy::kMaxPathBytes, ")"));
      } else if (const auto glob = policy::Glob::compile(path, policy::GlobKind::binary); !glob.ok()) {
        error(field, cat("binary path '", path, "' ", std::string{to_std(glob.status().message())}));
      }
    }
  }

  static bool valid_file_path(const std::string& path) {
    if (path.empty() || path.front() == '/') return false;
    for (const auto part : absl::StrSplit(path, '/')) {
      if (part.empty() || part == "." || part == "..") return false;
      if (!std::all_of(part.begin(), part.end(),
                       [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-'; }))
        return false;
    }
    return true;
  }
  void check_files(std::set<std::string>& names) {
    std::set<std::string> paths;
    std::size_t total = 0;
    for (int i = 0; i < profile_.files_size(); ++i) {
      const auto& file = profile_.files(i);
      const auto field = cat("files[", i, "]");
      if (!valid_file_path(file.path())) {
        error(field, cat("provider file path is invalid: ", file.path()));
      } else if (!paths.insert(file.path()).second) {
        error(field, cat("duplicate provider file path: ", file.path()));
      }
      const bool named = file.env_var().empty() || (is_credential_key(file.env_var()) && names.insert(file.env_var()).second);
      if (!named) error(field, cat("provider file env_var is invalid: ", file.env_var()));
      total += file.content().size();
      if (file.content().find('\0') != std::string::npos || file.content().size() > kMaxProfileFileBytes)
        error(field, cat("provider file '", file.path(), "' exceeds the size limit"));
    }
    if (static_cast<std::size_t>(profile_.files_size()) > kMaxProfileFiles || total > kMaxProfileFilesBytes)
      error("files", cat("provider profile has more than ", kMaxProfileFiles, " files or ", kMaxProfileFilesBytes, " bytes of them"));
  }

  const ProfileSource& at_;
  const ProfileMessage& profile_;
  std::vector<ProfileDiagnostic>& out_;
};

}  // namespace

std::vector<ProfileDiagnostic> lint(const std::vector<ProfileSource>& profiles) {
  std::vector<ProfileDiagnostic> out;
  std::set<std::string> ids;
  for (const auto& each : profiles) Linter{each, out}.run(ids);
  return out;
}

}  // namespace openshell::providers
