#include "providers/profile_file.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_replace.h>

#include <array>
#include <boost/json/parse.hpp>

#include "observability/text.hpp"
#include "policy/decode.hpp"
#include "policy/decode_reader.hpp"
#include "policy/serialize.hpp"
#include "policy/yaml_tree.hpp"
#include "sandbox.pb.h"

namespace openshell::providers {
namespace {

using namespace openshell::v1;
namespace json = boost::json;
using policy::YamlNode;
using policy::YamlNodePtr;

template <class Value>
struct Word {
  std::string_view text;
  Value value;
};
constexpr std::array kCategories{
    Word<ProviderProfileCategory>{"other", PROVIDER_PROFILE_CATEGORY_OTHER},
    Word<ProviderProfileCategory>{"inference", PROVIDER_PROFILE_CATEGORY_INFERENCE},
    Word<ProviderProfileCategory>{"agent", PROVIDER_PROFILE_CATEGORY_AGENT},
    Word<ProviderProfileCategory>{"source_control", PROVIDER_PROFILE_CATEGORY_SOURCE_CONTROL},
    Word<ProviderProfileCategory>{"messaging", PROVIDER_PROFILE_CATEGORY_MESSAGING},
    Word<ProviderProfileCategory>{"data", PROVIDER_PROFILE_CATEGORY_DATA},
    Word<ProviderProfileCategory>{"knowledge", PROVIDER_PROFILE_CATEGORY_KNOWLEDGE},
};
constexpr std::array kStrategies{
    Word<ProviderCredentialRefreshStrategy>{"static", PROVIDER_CREDENTIAL_REFRESH_STRATEGY_STATIC},
    Word<ProviderCredentialRefreshStrategy>{"external", PROVIDER_CREDENTIAL_REFRESH_STRATEGY_EXTERNAL},
    Word<ProviderCredentialRefreshStrategy>{"oauth2_refresh_token", PROVIDER_CREDENTIAL_REFRESH_STRATEGY_OAUTH2_REFRESH_TOKEN},
    Word<ProviderCredentialRefreshStrategy>{"oauth2_client_credentials", PROVIDER_CREDENTIAL_REFRESH_STRATEGY_OAUTH2_CLIENT_CREDENTIALS},
    Word<ProviderCredentialRefreshStrategy>{"google_service_account_jwt", PROVIDER_CREDENTIAL_REFRESH_STRATEGY_GOOGLE_SERVICE_ACCOUNT_JWT},
    Word<ProviderCredentialRefreshStrategy>{"aws_sts_assume_role", PROVIDER_CREDENTIAL_REFRESH_STRATEGY_AWS_STS_ASSUME_ROLE},
};
constexpr std::array kGrants{
    Word<ProviderCredentialTokenGrantType>{"client_credentials", PROVIDER_CREDENTIAL_TOKEN_GRANT_TYPE_CLIENT_CREDENTIALS},
    Word<ProviderCredentialTokenGrantType>{"token_exchange", PROVIDER_CREDENTIAL_TOKEN_GRANT_TYPE_TOKEN_EXCHANGE},
};

constexpr std::array<std::string_view, 14> kTop{"id",        "resource_version", "annotations", "display_name", "description",
                                                "category",  "credentials",      "endpoints",   "binaries",     "inference_capable",
                                                "discovery", "source",           "scope",       "files"};
constexpr std::array<std::string_view, 11> kCredential{"name",       "description", "env_vars",          "required",
                                                       "auth_style", "header_name", "query_param",       "path_template",
                                                       "refresh",    "token_grant", "stable_placeholder"};
constexpr std::array<std::string_view, 9> kRefresh{
    "strategy", "token_url",         "scopes", "refresh_before", "refresh_before_seconds", "max_lifetime", "max_lifetime_seconds",
    "material", "additional_outputs"};
constexpr std::array<std::string_view, 4> kMaterial{"name", "description", "required", "secret"};
constexpr std::array<std::string_view, 2> kOutput{"output", "credential"};
constexpr std::array<std::string_view, 11> kGrant{
    "grant_type", "token_endpoint",    "audience",      "jwt_svid_audience",    "client_assertion_type", "scopes",
    "cache_ttl",  "cache_ttl_seconds", "subject_token", "requested_token_type", "audience_overrides"};
constexpr std::array<std::string_view, 3> kSubject{"source", "credential", "subject_token_type"};
constexpr std::array<std::string_view, 5> kOverride{"host", "port", "path", "audience", "scopes"};
constexpr std::array<std::string_view, 1> kDiscovery{"credentials"};
constexpr std::array<std::string_view, 3> kFile{"path", "content", "env_var"};

template <class Words>
std::string word_of(const Words& words, int value) {
  for (const auto& word : words) {
    if (static_cast<int>(word.value) == value) return std::string{word.text};
  }
  return {};
}

/// `1.5s` to seconds and nanoseconds. False: not of that form.
bool read_duration(std::string_view text, google::protobuf::Duration& out) {
  if (!text.ends_with('s') || text.size() < 2 || text.size() > 40) return false;
  text.remove_suffix(1);
  const auto dot = text.find('.');
  const auto whole = text.substr(0, dot);
  const auto part = dot == std::string_view::npos ? std::string_view{} : text.substr(dot + 1);
  const auto digits = [](std::string_view some) { return !some.empty() && some.find_first_not_of("0123456789") == std::string_view::npos; };
  if (!digits(whole) || (dot != std::string_view::npos && (!digits(part) || part.size() > 9))) return false;
  std::int64_t seconds = 0;
  if (!absl::SimpleAtoi(absl::string_view{whole.data(), whole.size()}, &seconds)) return false;
  std::string nanos{part};
  nanos.resize(9, '0');
  int value = 0;
  if (!absl::SimpleAtoi(nanos, &value)) return false;
  out.set_seconds(seconds);
  out.set_nanos(value);
  return true;
}

class ProfileReader : private policy::ValueReader {
 public:
  using ValueReader::ValueReader;

  void profile(const YamlNode& root, ProviderProfile& out) {
    bool id = false;
    bool named = false;
    out.set_category(PROVIDER_PROFILE_CATEGORY_OTHER);
    each_key(root, "", kTop, [&](std::string_view key, const YamlNode& node, const std::string& at) {
      if (key == "id") id = string(node, at, *out.mutable_id());
      if (key == "display_name") named = string(node, at, *out.mutable_display_name());
      if (key == "description") string(node, at, *out.mutable_description());
      if (key == "source") string(node, at, *out.mutable_source());
      if (key == "scope") string(node, at, *out.mutable_scope());
      if (key == "resource_version")
        whole(node, at, [&](std::int64_t value) { out.set_resource_version(static_cast<std::uint64_t>(value)); });
      if (key == "inference_capable") boolean(node, at, [&](bool value) { out.set_inference_capable(value); });
      if (key == "category") word(node, at, kCategories, "provider profile category", [&](auto value) { out.set_category(value); });
      if (key == "annotations") annotations(node, at, out);
      if (key == "credentials")
        each_element(node, at, [&](const YamlNode& one, const std::string& here) { credential(one, here, *out.add_credentials()); });
      if (key == "endpoints") endpoints_ = policy::YamlNodePtr{std::shared_ptr<void>{}, &node};
      if (key == "binaries") each_element(node, at, [&](const YamlNode& one, const std::string& here) { binary(one, here, out); });
      if (key == "discovery") discovery(node, at, out);
      if (key == "files") each_element(node, at, [&](const YamlNode& one, const std::string& here) { file(one, here, *out.add_files()); });
    });
    if (root.kind != YamlNode::Kind::mapping) return;
    if (!id && root.find("id") == nullptr) missing(root, "", "id", "add `id: my-service`");
    if (!named && root.find("display_name") == nullptr) missing(root, "", "display_name", "add `display_name: My Service`");
    if (endpoints_ != nullptr) endpoints(out);
  }

 private:
  void whole(const YamlNode& node, const std::string& path, auto&& set) {
    std::int64_t value = 0;
    if (integer(node, path, 0, std::numeric_limits<std::int64_t>::max(), "number", value)) set(value);
  }
  template <class Words, class Set>
  void word(const YamlNode& node, const std::string& path, const Words& words, std::string_view what, Set&& set) {
    std::string text;
    if (!string(node, path, text)) return;
    const auto plain = absl::StrReplaceAll(absl::AsciiStrToLower(absl::StripAsciiWhitespace(text)), {{"-", "_"}});
    if (plain.empty()) return;
    std::vector<std::string_view> known;
    for (const auto& one : words) {
      if (one.text == plain) return set(one.value);
      known.push_back(one.text);
    }
    const auto near = policy::nearest(plain, known);
    error(node.place, path, cat("unsupported ", what, ": ", policy::shorten(text, 64)),
          near.empty() ? "" : cat("did you mean '", near, "'?"));
  }
  /// A duration, as text or, in the older form, as whole seconds; one of the two.
  void duration(const YamlNode& node, const std::string& path, google::protobuf::Duration& out) {
    std::string text;
    if (!string(node, path, text)) return;
    if (!read_duration(text, out))
      error(node.place, path, cat(shown(path), " must be a valid non-negative duration: '", policy::shorten(text, 64), "'"),
            "write it like \"300s\"");
  }
  void seconds(const YamlNode& node, const std::string& path, auto&& mutable_duration) {
    std::int64_t value = 0;
    if (!integer(node, path, std::numeric_limits<std::int64_t>::min(), 315'576'000'000, "seconds", value)) return;
    if (value < 0) return error(node.place, path, cat(shown(path), " must be greater than or equal to 0"));
    if (value > 0) mutable_duration()->set_seconds(value);
  }
  void not_both(const YamlNode& node, const std::string& path, std::string_view name) {
    if (node.find(name) != nullptr && node.find(cat(name, "_seconds")) != nullptr)
      error(node.place, path, cat(name, " and ", name, "_seconds cannot both be set"));
  }

  void annotations(const YamlNode& node, const std::string& path, ProviderProfile& out) {
    each_entry(node, path, [&](const std::string& key, const YamlNode& value, const std::string& at) {
      string(value, at, (*out.mutable_annotations())[key]);
    });
  }
  void credential(const YamlNode& node, const std::string& path, ProviderProfileCredential& out) {
    each_key(node, path, kCredential, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "name") string(value, at, *out.mutable_name());
      if (key == "description") string(value, at, *out.mutable_description());
      if (key == "env_vars") strings(value, at, *out.mutable_env_vars());
      if (key == "required") boolean(value, at, [&](bool yes) { out.set_required(yes); });
      if (key == "auth_style") string(value, at, *out.mutable_auth_style());
      if (key == "header_name") string(value, at, *out.mutable_header_name());
      if (key == "query_param") string(value, at, *out.mutable_query_param());
      if (key == "path_template") string(value, at, *out.mutable_path_template());
      if (key == "stable_placeholder") boolean(value, at, [&](bool yes) { out.set_stable_placeholder(yes); });
      if (key == "refresh") refresh(value, at, *out.mutable_refresh());
      if (key == "token_grant") grant(value, at, *out.mutable_token_grant());
    });
  }
  void refresh(const YamlNode& node, const std::string& path, ProviderCredentialRefresh& out) {
    if (node.kind == YamlNode::Kind::mapping) {
      not_both(node, path, "refresh_before");
      not_both(node, path, "max_lifetime");
    }
    each_key(node, path, kRefresh, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "strategy") word(value, at, kStrategies, "provider refresh strategy", [&](auto strategy) { out.set_strategy(strategy); });
      if (key == "token_url") string(value, at, *out.mutable_token_url());
      if (key == "scopes") strings(value, at, *out.mutable_scopes());
      if (key == "refresh_before") duration(value, at, *out.mutable_refresh_before());
      if (key == "max_lifetime") duration(value, at, *out.mutable_max_lifetime());
      if (key == "refresh_before_seconds") seconds(value, at, [&] { return out.mutable_refresh_before(); });
      if (key == "max_lifetime_seconds") seconds(value, at, [&] { return out.mutable_max_lifetime(); });
      if (key == "material")
        each_element(value, at, [&](const YamlNode& one, const std::string& here) { material(one, here, *out.add_material()); });
      if (key == "additional_outputs") {
        each_element(value, at, [&](const YamlNode& one, const std::string& here) {
          auto& output = *out.add_additional_outputs();
          each_key(one, here, kOutput, [&](std::string_view name, const YamlNode& text, const std::string& there) {
            string(text, there, name == "output" ? *output.mutable_output() : *output.mutable_credential());
          });
        });
      }
    });
  }
  void material(const YamlNode& node, const std::string& path, ProviderCredentialRefreshMaterial& out) {
    each_key(node, path, kMaterial, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "name") string(value, at, *out.mutable_name());
      if (key == "description") string(value, at, *out.mutable_description());
      if (key == "required") boolean(value, at, [&](bool yes) { out.set_required(yes); });
      if (key == "secret") boolean(value, at, [&](bool yes) { out.set_secret(yes); });
    });
  }
  void grant(const YamlNode& node, const std::string& path, ProviderCredentialTokenGrant& out) {
    if (node.kind == YamlNode::Kind::mapping) {
      not_both(node, path, "cache_ttl");
      if (node.find("token_endpoint") == nullptr) missing(node, path, "token_endpoint", "name the URL that gives tokens");
    }
    each_key(node, path, kGrant, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "grant_type") word(value, at, kGrants, "provider token grant type", [&](auto type) { out.set_grant_type(type); });
      if (key == "token_endpoint") string(value, at, *out.mutable_token_endpoint());
      if (key == "audience") string(value, at, *out.mutable_audience());
      if (key == "jwt_svid_audience") string(value, at, *out.mutable_jwt_svid_audience());
      if (key == "client_assertion_type") string(value, at, *out.mutable_client_assertion_type());
      if (key == "requested_token_type") string(value, at, *out.mutable_requested_token_type());
      if (key == "scopes") strings(value, at, *out.mutable_scopes());
      if (key == "cache_ttl") duration(value, at, *out.mutable_cache_ttl());
      if (key == "cache_ttl_seconds") seconds(value, at, [&] { return out.mutable_cache_ttl(); });
      if (key == "subject_token") {
        auto& subject = *out.mutable_subject_token();
        each_key(value, at, kSubject, [&](std::string_view name, const YamlNode& text, const std::string& there) {
          string(text, there,
                 name == "source"       ? *subject.mutable_source()
                 : name == "credential" ? *subject.mutable_credential()
                                        : *subject.mutable_subject_token_type());
        });
      }
      if (key == "audience_overrides")
        each_element(value, at, [&](const YamlNode& one, const std::string& here) { audience(one, here, *out.add_audience_overrides()); });
    });
  }
  void audience(const YamlNode& node, const std::string& path, ProviderCredentialTokenGrantAudienceOverride& out) {
    each_key(node, path, kOverride, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "host") string(value, at, *out.mutable_host());
      if (key == "port") u32(value, at, "port", [&](std::uint32_t port) { out.set_port(port); });
      if (key == "path") string(value, at, *out.mutable_path());
      if (key == "audience") string(value, at, *out.mutable_audience());
      if (key == "scopes") strings(value, at, *out.mutable_scopes());
    });
  }
  /// A path, or the older form with a key `path`.
  void binary(const YamlNode& node, const std::string& path, ProviderProfile& out) {
    if (node.kind != YamlNode::Kind::mapping) {
      string(node, path, *out.add_binaries()->mutable_path());
      return;
    }
    std::vector<std::string> others;
    for (const auto& key : node.keys) {
      if (key.text != "path") others.push_back(key.text);
    }
    std::sort(others.begin(), others.end());
    std::string list;
    for (const auto& key : others) list += cat(list.empty() ? "" : ", ", key);
    if (!list.empty())
      return error(node.place, path,
                   cat("unsupported provider profile binary fields: ", list,
                       "; binaries accept only 'path' and the deprecated 'harness' field was removed in 0.1.0"));
    if (const auto* value = node.find("path")) string(*value, path, *out.add_binaries()->mutable_path());
  }
  void discovery(const YamlNode& node, const std::string& path, ProviderProfile& out) {
    out.mutable_discovery();
    each_key(node, path, kDiscovery, [&](std::string_view, const YamlNode& value, const std::string& at) {
      strings(value, at, *out.mutable_discovery()->mutable_credentials());
    });
  }
  void file(const YamlNode& node, const std::string& path, ProviderProfileFile& out) {
    each_key(node, path, kFile, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      string(value, at, key == "path" ? *out.mutable_path() : key == "content" ? *out.mutable_content() : *out.mutable_env_var());
    });
  }

  static YamlNodePtr text_node(std::string text, policy::ScalarType type) {
    auto node = std::make_shared<YamlNode>();
    node->type = type;
    node->text = std::move(text);
    return node;
  }
  static YamlNodePtr mapping(const YamlNode& where, std::string key, YamlNodePtr value) {
    auto node = std::make_shared<YamlNode>();
    node->kind = YamlNode::Kind::mapping;
    node->place = where.place;
    node->keys.push_back({std::move(key), where.place});
    node->items.push_back(std::move(value));
    return node;
  }
  /// Endpoints are those of the policy language, read by its reader.
  void endpoints(ProviderProfile& out) {
    auto root = std::make_shared<YamlNode>(*mapping(*endpoints_, "version", text_node("1", policy::ScalarType::integer)));
    root->keys.push_back({"network_policies", endpoints_->place});
    root->items.push_back(mapping(*endpoints_, "profile", mapping(*endpoints_, "endpoints", endpoints_)));
    openshell::sandbox::v1::SandboxPolicy read;
    policy::SourceMap places;
    policy::decode_policy(*root, read, places, diagnostics_);
    for (auto& [name, rule] : *read.mutable_network_policies()) out.mutable_endpoints()->Swap(rule.mutable_endpoints());
  }

  YamlNodePtr endpoints_;  // lives in the tree that is read
};

/// The shared reader speaks of policies.
std::string of_profiles(std::string message) {
  return absl::StrReplaceAll(message, {{"failed to decode sandbox policy fields: ", "failed to decode provider profile: "},
                                       {"in authored policy", "in provider profile"},
                                       {"network_policies.profile.", ""}});
}

std::string duration_text(const google::protobuf::Duration& duration) {
  auto text = std::to_string(duration.seconds());
  if (duration.nanos() != 0) {
    auto nanos = std::to_string(1'000'000'000 + duration.nanos()).substr(1);
    while (nanos.back() == '0') nanos.pop_back();
    text += "." + nanos;
  }
  return text + "s";
}

/// Sets what is not empty.
void put(json::object& out, const char* key, const std::string& value) {
  if (!value.empty()) out[key] = value;
}
template <class List>
void put_list(json::object& out, const char* key, const List& list) {
  if (list.empty()) return;
  json::array items;
  for (const auto& one : list) items.emplace_back(one);
  out[key] = std::move(items);
}

json::object document_of(const ProviderCredentialRefresh& refresh) {
  json::object out{{"strategy", word_of(kStrategies, refresh.strategy())}};
  put(out, "token_url", refresh.token_url());
  put_list(out, "scopes", refresh.scopes());
  if (refresh.has_refresh_before()) out["refresh_before"] = duration_text(refresh.refresh_before());
  if (refresh.has_max_lifetime()) out["max_lifetime"] = duration_text(refresh.max_lifetime());
  json::array material;
  for (const auto& one : refresh.material()) {
    json::object item{{"name", one.name()}};
    put(item, "description", one.description());
    if (one.required()) item["required"] = true;
    if (one.secret()) item["secret"] = true;
    material.push_back(std::move(item));
  }
  if (!material.empty()) out["material"] = std::move(material);
  json::array outputs;
  for (const auto& one : refresh.additional_outputs())
    outputs.push_back(json::object{{"output", one.output()}, {"credential", one.credential()}});
  if (!outputs.empty()) out["additional_outputs"] = std::move(outputs);
  return out;
}

json::object document_of(const ProviderCredentialTokenGrant& grant) {
  json::object out{{"token_endpoint", grant.token_endpoint()}};
  if (grant.grant_type() == PROVIDER_CREDENTIAL_TOKEN_GRANT_TYPE_TOKEN_EXCHANGE) out["grant_type"] = "token_exchange";
  put(out, "audience", grant.audience());
  put(out, "jwt_svid_audience", grant.jwt_svid_audience());
  put(out, "client_assertion_type", grant.client_assertion_type());
  put(out, "requested_token_type", grant.requested_token_type());
  put_list(out, "scopes", grant.scopes());
  if (grant.has_cache_ttl()) out["cache_ttl"] = duration_text(grant.cache_ttl());
  if (grant.has_subject_token()) {
    json::object subject;
    put(subject, "source", grant.subject_token().source());
    put(subject, "credential", grant.subject_token().credential());
    put(subject, "subject_token_type", grant.subject_token().subject_token_type());
    out["subject_token"] = std::move(subject);
  }
  json::array overrides;
  for (const auto& one : grant.audience_overrides()) {
    json::object item{{"host", one.host()}, {"audience", one.audience()}};
    if (one.port() != 0) item["port"] = one.port();
    put(item, "path", one.path());
    put_list(item, "scopes", one.scopes());
    overrides.push_back(std::move(item));
  }
  if (!overrides.empty()) out["audience_overrides"] = std::move(overrides);
  return out;
}

json::object document_of(const ProviderProfileCredential& credential) {
  json::object out{{"name", credential.name()}};
  put(out, "description", credential.description());
  put_list(out, "env_vars", credential.env_vars());
  if (credential.required()) out["required"] = true;
  put(out, "auth_style", credential.auth_style());
  put(out, "header_name", credential.header_name());
  put(out, "query_param", credential.query_param());
  put(out, "path_template", credential.path_template());
  if (credential.stable_placeholder()) out["stable_placeholder"] = true;
  if (credential.has_refresh()) out["refresh"] = document_of(credential.refresh());
  if (credential.has_token_grant()) out["token_grant"] = document_of(credential.token_grant());
  return out;
}

absl::StatusOr<json::array> endpoint_documents(const ProviderProfile& profile) {
  if (profile.endpoints().empty()) return json::array{};
  openshell::sandbox::v1::SandboxPolicy policy;
  policy.set_version(1);
  auto& rule = (*policy.mutable_network_policies())["profile"];
  rule.set_name("profile");
  *rule.mutable_endpoints() = profile.endpoints();
  auto text = policy::to_json(policy, false);
  if (!text.ok()) return text.status();
  json::error_code fault;
  auto value = json::parse(*text, fault);
  const auto* found = fault ? nullptr : value.find_pointer("/network_policies/profile/endpoints", fault);
  if (found == nullptr || !found->is_array()) return absl::InternalError("endpoints have no file form");
  return found->as_array();
}

}  // namespace

std::string category_word(ProviderProfileCategory category) {
  auto word = word_of(kCategories, category);
  return word.empty() ? "other" : word;
}

absl::StatusOr<ProviderProfile> parse_profile(std::string_view text, const std::string& file) {
  policy::ParseLimits limits;
  limits.bytes = kMaxProfileTextBytes;
  policy::Diagnostics diagnostics;
  policy::SourceMap places;
  ProviderProfile out;
  const auto root = policy::read_yaml(text, limits, diagnostics);
  if (root != nullptr) ProfileReader{places, diagnostics}.profile(*root, out);
  if (!diagnostics.has_errors()) return out;
  std::string all;
  for (auto fault : diagnostics.items()) {
    if (fault.severity != policy::Severity::error) continue;
    fault.file = file;
    fault.message = of_profiles(std::move(fault.message));
    fault.path.clear();
    all += cat(all.empty() ? "" : "\n", fault.render());
  }
  return absl::InvalidArgumentError(all);
}

absl::StatusOr<json::object> profile_document(const ProviderProfile& profile) {
  json::object out{{"id", profile.id()}, {"display_name", profile.display_name()}};
  if (profile.resource_version() != 0) out["resource_version"] = profile.resource_version();
  put(out, "description", profile.description());
  out["category"] = category_word(profile.category());
  if (profile.inference_capable()) out["inference_capable"] = true;
  put(out, "source", profile.source());
  put(out, "scope", profile.scope());
  json::object annotations;
  for (const auto& [key, value] : profile.annotations()) annotations[key] = value;
  if (!annotations.empty()) out["annotations"] = std::move(annotations);
  json::array credentials;
  for (const auto& credential : profile.credentials()) credentials.push_back(document_of(credential));
  if (!credentials.empty()) out["credentials"] = std::move(credentials);
  auto endpoints = endpoint_documents(profile);
  if (!endpoints.ok()) return endpoints.status();
  if (!endpoints->empty()) out["endpoints"] = *std::move(endpoints);
  json::array binaries;
  for (const auto& binary : profile.binaries()) binaries.emplace_back(binary.path());
  if (!binaries.empty()) out["binaries"] = std::move(binaries);
  if (profile.has_discovery()) {
    json::array names;
    for (const auto& name : profile.discovery().credentials()) names.emplace_back(name);
    out["discovery"] = json::object{{"credentials", std::move(names)}};
  }
  json::array files;
  for (const auto& file : profile.files()) {
    json::object item{{"path", file.path()}, {"content", file.content()}};
    put(item, "env_var", file.env_var());
    files.push_back(std::move(item));
  }
  if (!files.empty()) out["files"] = std::move(files);
  return out;
}

}  // namespace openshell::providers
