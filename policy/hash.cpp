#include "policy/hash.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "policy/sha256.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

template <class Number>
void append_le(std::string& out, Number value) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
}

void append_count(std::string& out, std::size_t count) { append_le(out, static_cast<std::uint64_t>(count)); }

void append_bytes(std::string& out, std::string_view bytes) {
  append_count(out, bytes.size());
  out += bytes;
}

// Protobuf writes fields in ascending order; every map was cleared before, so the encoding is the same everywhere.
void append_message(std::string& out, const google::protobuf::MessageLite& message) { append_bytes(out, message.SerializeAsString()); }

template <class Map>
std::vector<const typename Map::value_type*> sorted(const Map& map) {
  std::vector<const typename Map::value_type*> entries;
  entries.reserve(map.size());
  for (const auto& entry : map) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  return entries;
}

template <class Map>
void append_map(std::string& out, std::string_view label, const Map& map) {
  append_bytes(out, label);
  append_count(out, map.size());
  for (const auto* entry : sorted(map)) {
    append_bytes(out, entry->first);
    append_message(out, entry->second);
  }
}

void append_value(std::string& out, const google::protobuf::Value& value);

std::string struct_bytes(const google::protobuf::Struct& object) {
  std::string out;
  append_count(out, object.fields().size());
  for (const auto* entry : sorted(object.fields())) {
    append_bytes(out, entry->first);
    std::string value;
    append_value(value, entry->second);
    append_bytes(out, value);
  }
  return out;
}

void append_value(std::string& out, const google::protobuf::Value& value) {
  using Kind = google::protobuf::Value::KindCase;
  switch (value.kind_case()) {
    case Kind::KIND_NOT_SET:
      out.push_back('\x00');
      return;
    case Kind::kNullValue:
      out.push_back('\x01');
      append_le(out, std::int32_t{0});
      return;
    case Kind::kNumberValue:
      out.push_back('\x02');
      append_le(out, std::bit_cast<std::uint64_t>(value.number_value()));
      return;
    case Kind::kStringValue:
      out.push_back('\x03');
      append_bytes(out, value.string_value());
      return;
    case Kind::kBoolValue:
      out.push_back('\x04');
      out.push_back(value.bool_value() ? '\x01' : '\x00');
      return;
    case Kind::kStructValue:
      out.push_back('\x05');
      append_bytes(out, struct_bytes(value.struct_value()));
      return;
    case Kind::kListValue:
      out.push_back('\x06');
      append_count(out, static_cast<std::size_t>(value.list_value().values_size()));
      for (const auto& item : value.list_value().values()) {
        std::string bytes;
        append_value(bytes, item);
        append_bytes(out, bytes);
      }
      return;
  }
}

std::string rule_bytes(const pb::NetworkPolicyRule& rule) {
  pb::NetworkPolicyRule bare = rule;
  for (auto& endpoint : *bare.mutable_endpoints()) {
    endpoint.clear_graphql_persisted_queries();
    for (auto& item : *endpoint.mutable_rules()) {
      if (!item.has_allow()) continue;
      item.mutable_allow()->clear_query();
      item.mutable_allow()->clear_params();
    }
    for (auto& item : *endpoint.mutable_deny_rules()) {
      item.clear_query();
      item.clear_params();
    }
  }
  std::string out;
  append_message(out, bare);
  for (int i = 0; i < rule.endpoints_size(); ++i) {
    const auto& endpoint = rule.endpoints(i);
    append_count(out, static_cast<std::size_t>(i));
    append_map(out, "graphql_persisted_queries", endpoint.graphql_persisted_queries());
    for (int j = 0; j < endpoint.rules_size(); ++j) {
      append_count(out, static_cast<std::size_t>(j));
      if (!endpoint.rules(j).has_allow()) continue;
      append_map(out, "allow_query", endpoint.rules(j).allow().query());
      append_map(out, "allow_params", endpoint.rules(j).allow().params());
    }
    for (int j = 0; j < endpoint.deny_rules_size(); ++j) {
      append_count(out, static_cast<std::size_t>(j));
      append_map(out, "deny_query", endpoint.deny_rules(j).query());
      append_map(out, "deny_params", endpoint.deny_rules(j).params());
    }
  }
  return out;
}

std::string middleware_bytes(const pb::NetworkMiddlewareConfig& config) {
  pb::NetworkMiddlewareConfig bare = config;
  bare.clear_config();
  std::string out;
  append_message(out, bare);
  if (config.has_config()) append_bytes(out, struct_bytes(config.config()));
  return out;
}

void append_setting(std::string& out, const std::string& key, const pb::EffectiveSetting& setting) {
  out += key;
  append_le(out, static_cast<std::int32_t>(setting.scope()));
  using Kind = pb::SettingValue::ValueCase;
  switch (setting.value().value_case()) {
    case Kind::kStringValue:
      out.push_back('\x00');
      out += setting.value().string_value();
      return;
    case Kind::kBoolValue:
      out.push_back('\x01');
      out.push_back(setting.value().bool_value() ? '\x01' : '\x00');
      return;
    case Kind::kIntValue:
      out.push_back('\x02');
      append_le(out, setting.value().int_value());
      return;
    case Kind::kBytesValue:
      out.push_back('\x03');
      out += setting.value().bytes_value();
      return;
    case Kind::VALUE_NOT_SET:
      return;
  }
}

}  // namespace

std::string canonical_bytes(const pb::SandboxPolicy& policy) {
  pb::SandboxPolicy known = policy;
  known.DiscardUnknownFields();
  pb::SandboxPolicy bare = known;
  bare.clear_network_policies();
  bare.clear_network_middlewares();
  std::string out;
  append_message(out, bare);
  append_bytes(out, "network_policies");
  append_count(out, known.network_policies().size());
  for (const auto* entry : sorted(known.network_policies())) {
    append_bytes(out, entry->first);
    append_bytes(out, rule_bytes(entry->second));
  }
  append_bytes(out, "network_middlewares");
  append_count(out, known.network_middlewares().size());
  for (const auto* entry : sorted(known.network_middlewares())) {
    append_bytes(out, entry->first);
    append_bytes(out, middleware_bytes(entry->second));
  }
  return out;
}

PolicyHash policy_hash(const pb::SandboxPolicy& policy) { return PolicyHash{sha256_hex(canonical_bytes(policy))}; }

std::uint64_t config_revision(const ConfigFingerprint& config) {
  std::string bytes;
  append_le(bytes, config.policy_source);
  bytes += config.failure_mode;
  bytes.push_back(config.extension_authentication ? '\x01' : '\x00');
  bytes += config.hash.str();
  for (const auto& [key, setting] : config.settings) {
    if (setting != nullptr) append_setting(bytes, key, *setting);
  }
  auto services = config.middleware_services;
  std::erase(services, nullptr);
  std::sort(services.begin(), services.end(), [](const auto* a, const auto* b) { return a->name() < b->name(); });
  for (const auto* service : services) bytes += service->SerializeAsString();
  const auto digest = sha256(bytes);
  std::uint64_t revision = 0;
  for (std::size_t i = 0; i < sizeof(revision); ++i) revision |= static_cast<std::uint64_t>(digest[i]) << (8 * i);
  return revision;
}

}  // namespace openshell::policy
