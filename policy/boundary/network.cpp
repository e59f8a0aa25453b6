// Connections of the candidate, one of each kind, put to both compiled policies.
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "policy/boundary/atoms.hpp"
#include "policy/boundary/parts.hpp"
#include "policy/boundary/requests.hpp"
#include "policy/matcher.hpp"
#include "policy/rank.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy::boundary {
namespace {

using text::cat;
using Compiled = std::shared_ptr<const Matcher>;

// Patterns of one dimension under numbers, and the examples of it.
class Dimension {
 public:
  explicit Dimension(GlobKind kind) : kind_{kind} {}

  absl::StatusOr<std::uint32_t> number(const std::string& pattern) {
    const auto [at, fresh] = numbers_.try_emplace(pattern, static_cast<std::uint32_t>(globs_.size()));
    if (fresh) {
      auto glob = Glob::compile(pattern, kind_);
      if (!glob.ok()) return glob.status();
      globs_.push_back(std::make_unique<Glob>(*std::move(glob)));
    }
    return at->second;
  }

  absl::Status find_atoms(const std::function<bool()>& stop) {
    std::vector<const Glob*> globs;
    for (const auto& glob : globs_) globs.push_back(glob.get());
    auto atoms = atoms_of(globs, kind_, stop);
    if (!atoms.ok()) return atoms.status();
    atoms_ = *std::move(atoms);
    of_pattern_.resize(globs_.size());
    for (std::uint32_t i = 0; i < atoms_.size(); ++i) {
      for (const auto pattern : atoms_[i].matched) of_pattern_[pattern].push_back(i);
    }
    return absl::OkStatus();
  }

  [[nodiscard]] const std::vector<std::uint32_t>& of(const std::string& pattern) const { return of_pattern_[numbers_.at(pattern)]; }
  [[nodiscard]] const std::string& text(std::uint32_t atom) const { return atoms_[atom].text; }

 private:
  GlobKind kind_;
  absl::flat_hash_map<std::string, std::uint32_t> numbers_;
  std::vector<std::unique_ptr<Glob>> globs_;
  std::vector<Atom> atoms_;
  std::vector<std::vector<std::uint32_t>> of_pattern_;
};

// Handling of credentials that a connection may have and that is no action of its own.
std::set<std::string> credential_uses(const Connection& connection) {
  std::set<std::string> out;
  for (const Endpoint* e : connection.endpoints()) {
    if (e->request_body_credential_rewrite) out.insert("request_body_credential_rewrite");
    if (e->websocket_credential_rewrite) out.insert("websocket_credential_rewrite");
    if (e->allow_uninspected_credentials) out.insert("allow_uninspected_credentials");
    if (!e->source->credential_signing().empty()) out.insert(cat("credential_signing: ", e->source->credential_signing()));
    if (e->source->has_credential_binding()) out.insert(cat("credential_binding to '", e->source->credential_binding().provider(), "'"));
  }
  return out;
}

bool covers_every_binary(const std::string& pattern) { return pattern == "/**" || pattern == "**"; }

class NetworkCheck {
 public:
  NetworkCheck(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary, const Limits& limits)
      : candidate_{candidate}, boundary_{boundary}, limits_{limits}, requests_{[this] { return spend(); }} {}

  MaybeAnswer run() {
    if (auto answer = prepare()) return answer;
    for (const bool enforced : {false, true}) {
      if (auto answer = pass(enforced)) return answer;
    }
    return std::move(unsure_);
  }

 private:
  // Counts one question. Anything but none: no more of them.
  Reason spend() {
    if (++questions_ > kMaxQuestions) return Reason::resource_limit;
    if (questions_ % 16 != 1 || !limits_.interrupted) return Reason::none;
    return limits_.interrupted();
  }

  Answer failed(const absl::Status& status) const {
    if (status.code() == absl::StatusCode::kCancelled) return ended(limits_.interrupted());
    if (status.code() == absl::StatusCode::kResourceExhausted) return unresolved(Reason::resource_limit, std::string{status.message()});
    return unresolved(Reason::invalid_input, std::string{status.message()});
  }

  static absl::StatusOr<Compiled> compile(const pb::SandboxPolicy& policy, bool enforced) {
    MatcherOptions options;
    options.require_binary_identity = enforced;
    return Matcher::compile(policy, options);
  }

  MaybeAnswer prepare() {
    absl::Status status;
    const auto note = [&](Dimension& dimension, const std::string& pattern) {
      if (status.ok()) status = dimension.number(pattern).status();
    };
    for (const auto* policy : {&candidate_, &boundary_}) {
      for (const auto& [key, rule] : policy->network_policies()) {
        for (const auto& binary : rule.binaries()) note(binaries_, binary.path());
        for (const auto& endpoint : rule.endpoints()) note(hosts_, text::lower(endpoint.host()));
      }
    }
    for (const auto* alias : {"host.openshell.internal", "host.docker.internal", "host.containers.internal"}) note(hosts_, alias);
    const std::function<bool()> stop = [this] { return limits_.interrupted && limits_.interrupted() != Reason::none; };
    if (status.ok()) status = binaries_.find_atoms(stop);
    if (status.ok()) status = hosts_.find_atoms(stop);
    if (!status.ok()) return failed(status);
    // A link may lead out of what a pattern of the boundary means, never away from an executable that it lists by name.
    exact_boundary_ = boundary_;
    for (auto& [key, rule] : *exact_boundary_.mutable_network_policies()) {
      auto& list = *rule.mutable_binaries();
      for (int i = list.size() - 1; i >= 0; --i) {
        const auto& path = list.Get(i).path();
        if (path.find('*') != std::string::npos && !covers_every_binary(path)) list.DeleteSubrange(i, 1);
      }
    }
    return {};
  }

  MaybeAnswer pass(bool enforced) {
    enforced_ = enforced;
    seen_.clear();
    requests_.forget();
    for (auto [into, policy] : std::initializer_list<std::pair<Compiled*, const pb::SandboxPolicy*>>{
             {&mine_, &candidate_}, {&theirs_, &boundary_}, {&exact_, &exact_boundary_}}) {
      auto compiled = compile(*policy, enforced);
      if (!compiled.ok()) return failed(compiled.status());
      *into = *std::move(compiled);
    }
    std::vector<std::pair<std::string, const pb::NetworkPolicyRule*>> ordered;
    for (const auto& [key, rule] : candidate_.network_policies()) ordered.emplace_back(key, &rule);
    std::sort(ordered.begin(), ordered.end());
    for (const auto& [key, rule] : ordered) {
      if (auto answer = grants_of(*rule)) return answer;
    }
    return {};
  }

  MaybeAnswer grants_of(const pb::NetworkPolicyRule& rule) {
    for (const auto& endpoint : rule.endpoints()) {
      for (const auto host : hosts_.of(text::lower(endpoint.host()))) {
        for (const auto port : endpoint.ports()) {
          if (auto answer = programs_of(rule, host, static_cast<std::uint16_t>(port))) return answer;
        }
      }
    }
    return {};
  }

  MaybeAnswer programs_of(const pb::NetworkPolicyRule& rule, std::uint32_t host, std::uint16_t port) {
    if (!enforced_) return connection({}, false, host, port);
    for (const auto& binary : rule.binaries()) {
      const bool exact = binary.path().find('*') == std::string::npos;
      for (const auto atom : binaries_.of(binary.path())) {
        if (auto answer = connection(binaries_.text(atom), exact, host, port)) return answer;
      }
    }
    return {};
  }

  MaybeAnswer connection(const std::string& binary, bool exact, std::uint32_t host_atom, std::uint16_t port) {
    if (!seen_.emplace(binary, exact, host_atom, port).second) return {};
    const std::string& host = hosts_.text(host_atom);
    if (auto answer = compare(binary, {}, host, port)) return answer;
    if (!enforced_) return {};
    const Destination destination{host, port, {binary, {}, {}}};
    if (!unsure_ && exact && mine_->connect(destination).allowed && !exact_->connect(destination).allowed) {
      unsure_ = unresolved(
          Reason::unresolved_binary_path,
          cat("the candidate names '", binary, "' for ", host, ":", port,
              ", which the boundary covers by a pattern only: where a link of that name leads is not known; list it in the boundary"));
    }
    // What the boundary refuses to an ancestor it refuses to the program.
    for (const auto& ancestor : refused_ancestors(host, port)) {
      if (ancestor == binary) continue;
      if (auto answer = compare(binary, ancestor, host, port)) return answer;
    }
    return {};
  }

  // One program for each way of being named by rules of the boundary that have deny rules for this place.
  const std::vector<std::string>& refused_ancestors(const std::string& host, std::uint16_t port) {
    auto [at, fresh] = ancestors_.try_emplace(std::pair{host, port});
    if (!fresh) return at->second;
    std::set<std::uint32_t> atoms;
    for (const Endpoint* endpoint : theirs_->endpoints_for(host)) {
      if (endpoint->source->deny_rules_size() == 0) continue;
      if (std::find(endpoint->ports.begin(), endpoint->ports.end(), port) == endpoint->ports.end()) continue;
      for (const auto& binary : boundary_.network_policies().at(std::string{endpoint->policy}).binaries()) {
        const auto& list = binaries_.of(binary.path());
        atoms.insert(list.begin(), list.end());
      }
    }
    for (const auto atom : atoms) at->second.push_back(binaries_.text(atom));
    return at->second;
  }

  Counterexample example(const std::string& binary, const std::string& ancestor, const std::string& host, std::uint16_t port) const {
    Counterexample out;
    out.domain = Counterexample::Domain::network_l4;
    out.binary = binary;
    out.ancestor = ancestor;
    out.identity_enforced = enforced_;
    out.host = host;
    out.port = port;
    return out;
  }

  MaybeAnswer compare(const std::string& binary, const std::string& ancestor, const std::string& host, std::uint16_t port) {
    if (const auto reason = spend(); reason != Reason::none) return ended(reason);
    std::vector<std::string> ancestors;
    if (!ancestor.empty()) ancestors.push_back(ancestor);
    const Destination destination{host, port, {binary, ancestors, {}}};
    const Connection mine = mine_->connect(destination);
    if (!mine.allowed) return {};
    const Connection theirs = theirs_->connect(destination);
    if (!theirs.allowed) return exceeds(example(binary, ancestor, host, port));
    if (theirs.inspection == Inspection::requests && mine.inspection != Inspection::requests) {
      return exceeds(example(binary, ancestor, host, port));  // whatever it sends, nobody looks
    }
    note_credentials(mine, theirs, host, port);
    if (mine.inspection != Inspection::requests || theirs.inspection != Inspection::requests) return {};
    auto found = requests_.compare(mine, theirs);
    if (found.ended != Reason::none) return ended(found.ended);
    if (!found.status.ok()) return failed(found.status);
    if (!found.request) return {};
    Counterexample out = example(binary, ancestor, host, port);
    out.domain = Counterexample::Domain::network_rest;
    out.method = found.request->method;
    out.path = found.request->path;
    out.query = found.request->query;
    return exceeds(std::move(out));
  }

  void note_credentials(const Connection& mine, const Connection& theirs, const std::string& host, std::uint16_t port) {
    if (unsure_) return;
    const auto permitted = credential_uses(theirs);
    for (const auto& use : credential_uses(mine)) {
      if (permitted.contains(use)) continue;
      unsure_ = unresolved(Reason::unsupported_policy_shape, cat("candidate policy uses ", use, " at ", host, ":", port,
                                                                 " and the boundary does not; credentials are not modeled"));
      return;
    }
  }

  const pb::SandboxPolicy& candidate_;
  const pb::SandboxPolicy& boundary_;
  const Limits& limits_;
  pb::SandboxPolicy exact_boundary_;  // without patterns of programs
  Dimension binaries_{GlobKind::binary};
  Dimension hosts_{GlobKind::host};
  RequestComparison requests_;
  Compiled mine_, theirs_, exact_;
  bool enforced_ = false;
  std::size_t questions_ = 0;
  std::set<std::tuple<std::string, bool, std::uint32_t, std::uint16_t>> seen_;
  std::map<std::pair<std::string, std::uint16_t>, std::vector<std::string>> ancestors_;
  MaybeAnswer unsure_;  // told where nothing exceeds for certain
};

}  // namespace

MaybeAnswer check_network(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary, const Limits& limits) {
  return NetworkCheck{candidate, boundary, limits}.run();
}

}  // namespace openshell::policy::boundary
