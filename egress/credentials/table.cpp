#include "egress/credentials/table.hpp"

#include <algorithm>
#include <mutex>

#include <fmt/format.h>

#include "egress/http/head.hpp"

namespace openshell::egress {
namespace {

absl::Status unavailable() { return absl::FailedPreconditionError("credential placeholder could not be resolved"); }

bool is_handle(std::string_view text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }

bool is_env_name(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

bool CredentialTable::covers(const Key& key, const CredentialScope& scope) {
  if (!key.bound) return scope.explicit_endpoint;
  return std::any_of(key.endpoints.begin(), key.endpoints.end(), [&](const Endpoint& endpoint) {
    return endpoint.port == scope.port.value && endpoint.host.matches(scope.host) && endpoint.path.matches(scope.path);
  });
}

bool CredentialTable::any_for(const CredentialScope& scope) const {
  return std::any_of(keys_.begin(), keys_.end(), [&](const auto& entry) { return covers(entry.second, scope); });
}

bool CredentialTable::allows(const std::string& key, const CredentialScope& scope) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && covers(found->second, scope);
}

bool CredentialTable::placed_in_header(const std::string& key, std::string_view field_name) const {
  if (http::equal_ignoring_case(field_name, "authorization")) return true;
  const auto found = keys_.find(key);
  return found != keys_.end() && !found->second.header.empty() && http::equal_ignoring_case(field_name, found->second.header);
}

bool CredentialTable::placed_in_query(const std::string& key, std::string_view parameter) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && !found->second.query.empty() && parameter == found->second.query;
}

bool CredentialTable::placed_in_path(const std::string& key, std::string_view path) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && std::any_of(found->second.paths.begin(), found->second.paths.end(),
                                             [path](const PartsPattern& pattern) { return pattern.matches(path); });
}

/// False: the template is none.
bool CredentialTable::place(Key& key, const CredentialPlacement& placement) {
  key.header = placement.header;
  key.query = placement.query;
  if (placement.path_template.empty()) return true;
  constexpr std::string_view kSlot = "{credential}";
  auto text = placement.path_template;
  const auto at = text.find(kSlot);
  if (at == std::string::npos || text.find(kSlot, at + 1) != std::string::npos || text.find(kPathSlot) != std::string::npos) return false;
  text.replace(at, kSlot.size(), 1, kPathSlot);
  auto pattern = PartsPattern::path(text);
  if (!pattern.ok()) return false;
  key.paths.push_back(*std::move(pattern));
  constexpr std::string_view kBelow = "/**";
  if (!text.ends_with(kBelow)) return true;
  auto prefix = PartsPattern::path(text.substr(0, text.size() - kBelow.size()));
  if (prefix.ok() && text.size() > kBelow.size() && text.find(kPathSlot) < text.size() - kBelow.size())
    key.paths.push_back(*std::move(prefix));
  return true;
}

std::string CredentialTable::identity(const std::string& key) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return {};
  return found->second.bound ? found->second.identity : "generic:" + key;
}

bool CredentialTable::is_bound(const std::string& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? ever_bound_.contains(key) : found->second.bound;
}

bool CredentialTable::was_issued(const Placeholder& token) const {
  const bool known = keys_.contains(token.key) || ever_bound_.contains(token.key);
  // Of a bound key the canonical form was never given to anybody.
  return known && !(token.form == Placeholder::Form::kCanonical && is_bound(token.key));
}

absl::StatusOr<Secret> CredentialTable::resolve(const Placeholder& token, const CredentialScope& scope, Now now) const {
  if (revoked_) return unavailable();
  const auto mismatch = absl::PermissionDeniedError("credential is not authorized for this request endpoint");
  const auto found = keys_.find(token.key);
  if (found == keys_.end()) return ever_bound_.contains(token.key) ? mismatch : unavailable();
  const Key& key = found->second;
  if (!covers(key, scope)) return mismatch;
  if (key.bound && token.form == Placeholder::Form::kCanonical) return unavailable();  // says nothing about whose credential was meant

  const Value* value = nullptr;
  switch (token.form) {
    case Placeholder::Form::kCanonical:
      value = &key.current;
      break;
    case Placeholder::Form::kStable:
      if (!key.handle.empty() && key.handle == token.handle) value = &key.current;
      break;
    case Placeholder::Form::kRevision: {
      if (!key.handle.empty()) break;
      for (const auto& generation : retained_) {
        const auto old = generation.values.find(token.key);
        if (generation.revision == token.revision && old != generation.values.end()) value = &old->second;
      }
      if (value == nullptr) {
        const auto epoch = epochs_.find(token.key);
        if (!key.bound || (epoch != epochs_.end() && epoch->second.revisions.contains(token.revision))) value = &key.current;
      }
      break;
    }
  }
  if (value == nullptr || (value->expires && *value->expires <= now)) return unavailable();
  if (value->secret.empty() || value->secret.reveal().find_first_of(std::string_view{"\r\n\0", 3}) != std::string_view::npos)
    return unavailable();
  return value->secret;
}

struct CredentialLedger::State {
  std::mutex mutex;
  std::shared_ptr<const CredentialTable> last = std::make_shared<const CredentialTable>();
};

CredentialLedger::CredentialLedger() : state_{std::make_unique<State>()} {}
CredentialLedger::~CredentialLedger() = default;

absl::StatusOr<CredentialLedger::Candidate> CredentialLedger::prepare(const ProviderEnvironment& environment) const {
  std::shared_ptr<const CredentialTable> last;
  {
    const std::lock_guard lock{state_->mutex};
    last = state_->last;
  }
  const auto refuse = [](const char* what) { return absl::InvalidArgumentError(what); };
  const std::set<std::string> open{environment.non_secret.begin(), environment.non_secret.end()};
  if (open.size() != environment.non_secret.size()) return refuse("provider environment repeats a non-secret environment key");
  for (const auto& key : open) {
    if (environment.bindings.contains(key)) {
      return refuse("provider environment classifies a key as both credential and non-secret configuration");
    }
    if (!environment.values.contains(key)) return refuse("provider environment metadata references a missing environment key");
  }
  for (const auto& [key, binding] : environment.bindings) {
    if (!environment.values.contains(key)) return refuse("provider environment metadata references a missing environment key");
    if (binding.identity.empty()) return refuse("static credential binding has no provider credential identity");
    if (binding.endpoints.empty()) return refuse("static credential binding has no authorized endpoints");
    if (!binding.handle.empty() && !is_handle(binding.handle))
      return refuse("static credential binding has an invalid workload credential handle");
  }

  auto table = std::make_shared<CredentialTable>();
  Candidate out;
  table->revision_ = environment.revision;
  table->ever_bound_ = last->ever_bound_;
  CredentialTable::Retained current;
  current.revision = environment.revision;
  bool identity_changed = false;
  for (const auto& [name, secret] : environment.values) {
    if (open.contains(name)) {
      out.child_env[name] = std::string{secret.reveal()};
      continue;
    }
    if (!is_env_name(name) || is_reserved_key(name)) {
      out.warnings.push_back(
          fmt::format("provider environment key '{}' is skipped: it reads as a placeholder or is no environment name", name));
      continue;
    }
    CredentialTable::Key key;
    key.current.secret = secret;
    if (const auto expiry = environment.expires.find(name); expiry != environment.expires.end()) key.current.expires = expiry->second;
    if (const auto binding = environment.bindings.find(name); binding != environment.bindings.end()) {
      key.bound = true;
      key.identity = binding->second.identity;
      key.handle = binding->second.handle;
      for (const auto& endpoint : binding->second.endpoints) {
        auto host = PartsPattern::host(endpoint.host);
        auto path = PartsPattern::path(endpoint.path);
        if (!host.ok() || !path.ok() || endpoint.port == 0 || endpoint.port > 65535) {
          return refuse("static credential binding contains an invalid endpoint");
        }
        key.endpoints.push_back({std::move(*host), endpoint.port, std::move(*path)});
      }
      if (!CredentialTable::place(key, binding->second.placement))
        out.warnings.push_back(fmt::format("the path template of '{}' is not one; the Authorization header is its only place", name));
      table->ever_bound_.insert(name);
      const auto epoch = last->epochs_.find(name);
      if (key.handle.empty()) {
        CredentialTable::Epoch next{key.identity, {}};
        if (epoch != last->epochs_.end() && epoch->second.identity == key.identity) next = epoch->second;
        identity_changed = identity_changed || (epoch != last->epochs_.end() && epoch->second.identity != key.identity);
        next.revisions.insert(environment.revision);
        table->epochs_.emplace(name, std::move(next));
      }
    }
    if (key.handle.empty()) current.values.emplace(name, key.current);
    out.child_env[name] = key.handle.empty() ? revision_placeholder(environment.revision, name) : stable_placeholder(key.handle, name);
    table->keys_.emplace(name, std::move(key));
  }
  if (!identity_changed) {
    for (const auto& old : last->retained_) {
      if (old.revision != environment.revision) table->retained_.push_back(old);
    }
  }
  table->retained_.push_back(std::move(current));
  while (table->retained_.size() > kMaxGenerations) table->retained_.pop_front();
  out.table = std::move(table);
  return out;
}

void CredentialLedger::commit(const Candidate& candidate) {
  const std::lock_guard lock{state_->mutex};
  state_->last = candidate.table;
}

CredentialLedger::Candidate CredentialLedger::revoked() const {
  std::shared_ptr<const CredentialTable> last;
  {
    const std::lock_guard lock{state_->mutex};
    last = state_->last;
  }
  auto table = std::make_shared<CredentialTable>();
  table->revoked_ = true;
  table->epochs_ = last->epochs_;
  table->ever_bound_ = last->ever_bound_;
  Candidate out;
  out.table = std::move(table);
  return out;
}

}  // namespace openshell::egress
